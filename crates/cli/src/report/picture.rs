//! Figures in a stated width: SVG, and with the feature `pictures` PDF and PNG.
//!
//! Their text is set in Arimo, whose letters are as wide as those of Helvetica and Arial, which the SVG names. It comes with the
//! program, so that a figure is the same on every machine, with fonts or without.

use core::str::FromStr;

/// What a figure is written as.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Kind {
    Svg,
    Pdf,
    Png,
}

impl Kind {
    /// The end of a file's name.
    pub(crate) fn extension(self) -> &'static str {
        match self {
            Self::Svg => "svg",
            Self::Pdf => "pdf",
            Self::Png => "png",
        }
    }
}

/// Of a figure on paper.
#[derive(Clone, Copy, PartialEq, PartialOrd, Debug)]
pub(crate) struct Width {
    millimetres: f64,
}

impl Width {
    /// So many millimetres.
    pub(crate) const fn from_millimetres(millimetres: f64) -> Self {
        Self { millimetres }
    }

    fn inches(self) -> f64 {
        self.millimetres / 25.4
    }
}

impl FromStr for Width {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let units = [("mm", 1.0), ("cm", 10.0), ("in", 25.4), ("pt", 25.4 / 72.0)];
        let read = |(unit, millimetres): &(&str, f64)| {
            let number: f64 = text.strip_suffix(unit)?.trim().parse().ok()?;
            Some(number * millimetres)
        };
        match units.iter().find_map(read) {
            Some(millimetres) if (20.0..=1000.0).contains(&millimetres) => Ok(Self { millimetres }),
            Some(_) => Err("write a width from 2cm to 100cm".to_owned()),
            None => Err("write a width with its unit: 8.5cm, 85mm, 3.35in or 241pt".to_owned()),
        }
    }
}

/// Why a program without the feature `pictures` draws no PDF and PNG, and the remedy.
const MISSING: &str =
    "this bandmaster draws SVG only: build it with `--features pictures`, or use `rsvg-convert`";

/// Why this program does not draw figures of a kind; none: it does.
pub(crate) fn missing(kind: Kind) -> Option<&'static str> {
    (kind != Kind::Svg && !cfg!(feature = "pictures")).then_some(MISSING)
}

/// Millions of pixels of a figure as PNG; none: it is none of ours.
pub(crate) fn megapixels(svg: &str, width: Width, dpi: u16) -> Option<f64> {
    let (wide, high) = sizes(svg)?;
    let pixels = width.inches() * f64::from(dpi);
    Some(pixels * pixels * (high.number / wide.number) / 1e6)
}

/// The figure that `svg` is, as wide as is said; PNG with so many pixels to an inch.
///
/// # Errors
/// Why it cannot be drawn.
pub(crate) fn draw(svg: &str, kind: Kind, width: Width, dpi: u16) -> Result<Vec<u8>, String> {
    match kind {
        Kind::Svg => resized(svg, width).map(String::into_bytes),
        Kind::Pdf => drawn::pdf(svg, width),
        Kind::Png => drawn::png(svg, width, dpi),
    }
}

/// A number in a drawing, and where it begins and ends.
struct Size {
    begin: usize,
    end: usize,
    number: f64,
}

/// Width and height of a drawing of ours.
fn sizes(svg: &str) -> Option<(Size, Size)> {
    let find = |name: &str| -> Option<Size> {
        let begin = svg.find(&format!(" {name}=\""))? + name.len() + 3;
        let end = begin + svg[begin..].find('"')?;
        Some(Size { begin, end, number: svg[begin..end].parse().ok()? })
    };
    find("width").zip(find("height")).filter(|(width, height)| width.end < height.begin)
}

/// A drawing of ours with another width and height.
fn resized(svg: &str, width: Width) -> Result<String, String> {
    let (wide, high) = sizes(svg).ok_or("is no figure of bandmaster")?;
    let millimetres = width.millimetres;
    Ok(format!(
        "{}{millimetres:.3}mm{}{:.3}mm{}",
        &svg[..wide.begin],
        &svg[wide.end..high.begin],
        millimetres * high.number / wide.number,
        &svg[high.end..]
    ))
}

#[cfg(not(feature = "pictures"))]
mod drawn {
    use super::{MISSING, Width};

    pub(super) fn pdf(_: &str, _: Width) -> Result<Vec<u8>, String> {
        Err(MISSING.to_owned())
    }

    pub(super) fn png(_: &str, _: Width, _: u16) -> Result<Vec<u8>, String> {
        Err(MISSING.to_owned())
    }
}

#[cfg(feature = "pictures")]
mod drawn {
    use resvg::tiny_skia::{Color, Pixmap, Transform};
    use resvg::usvg::{Options, Tree};
    use svg2pdf::{ConversionOptions, PageOptions};

    use super::Width;

    const FONT: &str = "Arimo";

    fn tree(svg: &str) -> Result<Tree, String> {
        let mut options = Options { font_family: FONT.to_owned(), ..Options::default() };
        let fonts = options.fontdb_mut();
        fonts.load_font_data(include_bytes!("../../fonts/Arimo-Regular.ttf").to_vec());
        fonts.load_font_data(include_bytes!("../../fonts/Arimo-Bold.ttf").to_vec());
        fonts.set_sans_serif_family(FONT);
        Tree::from_str(svg, &options).map_err(|error| error.to_string())
    }

    pub(super) fn pdf(svg: &str, width: Width) -> Result<Vec<u8>, String> {
        let tree = tree(svg)?;
        let dpi = (f64::from(tree.size().width()) / width.inches()) as f32;
        svg2pdf::to_pdf(&tree, ConversionOptions::default(), PageOptions { dpi })
            .map_err(|error| error.to_string())
    }

    pub(super) fn png(svg: &str, width: Width, dpi: u16) -> Result<Vec<u8>, String> {
        let tree = tree(svg)?;
        let pixels = (width.inches() * f64::from(dpi)).round();
        let scale = (pixels / f64::from(tree.size().width())) as f32;
        let height = (tree.size().height() * scale).ceil();
        let mut map = Pixmap::new(pixels as u32, height as u32).ok_or("is too large for a picture")?;
        // The last row may be covered in part.
        map.fill(Color::WHITE);
        resvg::render(&tree, Transform::from_scale(scale, scale), &mut map.as_mut());
        let png = map.encode_png().map_err(|error| error.to_string())?;
        Ok(with_resolution(png, dpi))
    }

    /// Says how large the picture is on paper, in a chunk before the first one of its content.
    fn with_resolution(mut png: Vec<u8>, dpi: u16) -> Vec<u8> {
        // The signature and the chunk IHDR.
        const BEFORE: usize = 8 + 25;
        let per_metre = (f64::from(dpi) / 0.0254).round() as u32;
        let mut chunk = b"pHYs".to_vec();
        chunk.extend(per_metre.to_be_bytes());
        chunk.extend(per_metre.to_be_bytes());
        // The unit is the metre.
        chunk.push(1);
        let sum = crc32fast::hash(&chunk).to_be_bytes();
        let length = (chunk.len() as u32 - 4).to_be_bytes();
        png.splice(BEFORE..BEFORE, length.into_iter().chain(chunk).chain(sum));
        png
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SVG: &str = "<?xml version=\"1.0\"?>\n<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"200\" height=\"100\" \
                       viewBox=\"0 0 200 100\" font-family=\"Helvetica, sans-serif\" font-size=\"20\">\
                       <rect width=\"200\" height=\"100\" fill=\"#fff\"/><text x=\"20\" y=\"60\">Mbit/s</text></svg>";

    #[test]
    fn widths_have_units() {
        let millimetres = |text: &str| text.parse::<Width>().map(|width| width.millimetres);
        assert_eq!(millimetres("8.5cm"), Ok(85.0));
        assert_eq!(millimetres("2in"), Ok(50.8));
        assert_eq!(millimetres("85 mm"), Ok(85.0));
        assert!(millimetres("8.5").is_err_and(|why| why.contains("with its unit")));
        assert!(millimetres("1cm").is_err_and(|why| why.contains("from 2cm to 100cm")));
        assert!(millimetres("NaNcm").is_err());
    }

    #[test]
    fn a_drawing_keeps_its_shape_in_another_width() {
        let svg = resized(SVG, Width::from_millimetres(85.0)).expect("a drawing");
        assert!(svg.contains("width=\"85.000mm\" height=\"42.500mm\" viewBox=\"0 0 200 100\""), "{svg}");
        assert!(svg.ends_with(&SVG[SVG.find("viewBox").expect("there")..]), "all else stays");
        assert!(resized("<svg/>", Width::from_millimetres(85.0)).is_err());
    }

    #[test]
    fn pixels_are_counted_before_they_are_made() {
        let count = |millimetres, dpi| megapixels(SVG, Width::from_millimetres(millimetres), dpi);
        assert_eq!(count(25.4, 2_000), Some(2.0));
        assert!(count(1_000.0, 2_400).is_some_and(|millions| (4_464.0..4_465.0).contains(&millions)));
        assert_eq!(megapixels("<svg/>", Width::from_millimetres(85.0), 300), None);
    }

    #[cfg(not(feature = "pictures"))]
    #[test]
    fn a_program_without_pictures_says_so() {
        assert_eq!(missing(Kind::Svg), None);
        assert!(missing(Kind::Png).is_some_and(|why| why.contains("--features pictures")));
        let refused = draw(SVG, Kind::Pdf, Width::from_millimetres(85.0), 300);
        assert!(refused.is_err_and(|why| why.contains("--features pictures")));
    }

    #[cfg(feature = "pictures")]
    #[test]
    fn pdf_and_png_have_the_width_and_the_text() {
        let width = Width::from_millimetres(50.8);
        let png = draw(SVG, Kind::Png, width, 300).expect("a picture");
        let word = |at: usize| u32::from_be_bytes(png[at..at + 4].try_into().expect("four bytes"));
        assert_eq!((word(16), word(20)), (600, 300), "pixels");
        assert_eq!((&png[37..41], word(41)), (&b"pHYs"[..], 11_811), "300 to an inch");
        // The text is drawn although no font of the machine is asked.
        let empty = draw(&SVG.replace("Mbit/s", ""), Kind::Png, width, 300).expect("a picture");
        assert!(png.len() > empty.len() + 500, "{} and {}", png.len(), empty.len());
        let pdf = draw(SVG, Kind::Pdf, width, 300).expect("a document");
        let text = String::from_utf8_lossy(&pdf);
        assert!(text.starts_with("%PDF-") && text.contains("/MediaBox [0 0 144 72]"), "2 in x 1 in");
        assert!(text.contains("Arimo"), "text stays text, in the font that comes with the program");
        assert_eq!(pdf, draw(SVG, Kind::Pdf, width, 300).expect("a document"), "the same bytes every time");
    }
}
