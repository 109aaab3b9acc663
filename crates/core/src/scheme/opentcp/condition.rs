//! Conditions in the Common Expression Language over statistics, checked for names and types before anything runs.

use std::any::Any;
use std::collections::BTreeMap;
use std::sync::{Arc, LazyLock};

use cel::common::ast::{ComprehensionExpr, Expr, LiteralValue, operators as op};
use cel::objects::Opaque;
use cel::{Context, Env, ExecutionError, IdedExpr, Program, Value};
use statrs::statistics::{Data, Distribution, OrderStatistics};

use super::statistic::{HostState, STATISTICS, Source, State, Statistic};

/// Longest text of a condition.
pub const LONGEST: usize = 512;

/// Most brackets inside each other: the parser is recursive.
pub const DEEPEST: usize = 6;
/// Most operators other than `&&` and `||`, for the same reason.
pub const MOST_OPERATORS: usize = 24;

/// A condition that is well-formed and well-typed.
#[derive(Clone, Debug)]
pub struct Condition {
    text: Arc<str>,
    program: Arc<Program>,
    statistics: Vec<&'static Statistic>,
    terms: Vec<(String, IdedExpr)>,
    takes_elements: bool,
}

/// Whose statistics a condition is about.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Scope {
    /// The network's: sets.
    Network,
    /// One host's: single values.
    Host,
}

/// What is wrong with a condition.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Fault {
    /// Character from 1.
    pub at: usize,
    /// What is wrong there.
    pub message: String,
}

impl core::fmt::Display for Fault {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "{} (character {} of the condition)", self.message, self.at)
    }
}

/// The language's own functions, which all values share: an agent makes values at each look.
static LANGUAGE: LazyLock<Arc<Env>> = LazyLock::new(|| Arc::new(Env::stdlib()));

/// How conditions use a statistic of many values.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Use {
    /// Not at all.
    No,
    /// Functions make a number of it.
    Whole,
    /// They go through its elements. This costs an allocation per value.
    Elements,
}

/// Values that functions take as a whole.
#[derive(Debug)]
struct Numbers(Vec<f64>);

impl PartialEq for Numbers {
    fn eq(&self, other: &Self) -> bool {
        self.0.iter().map(|x| x.to_bits()).eq(other.0.iter().map(|x| x.to_bits()))
    }
}

impl Eq for Numbers {}

impl Opaque for Numbers {
    fn runtime_type_name(&self) -> &str {
        "bandmaster.Numbers"
    }
}

/// Statistics as conditions see them.
pub struct Values(Context<'static, 'static>);

impl core::fmt::Debug for Values {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("Values")
    }
}

/// A part of a condition and its value, to explain an outcome.
#[derive(Clone, PartialEq, Debug, serde::Serialize)]
pub struct Term {
    /// The part as written.
    pub text: String,
    /// Its value; none: there are no data for it.
    pub value: Option<f64>,
}

impl PartialEq for Condition {
    fn eq(&self, other: &Self) -> bool {
        self.text == other.text
    }
}

impl Condition {
    /// Reads `text`.
    ///
    /// # Errors
    /// The first thing that is wrong: the form, a name or a type.
    pub fn compile(text: &str, scope: Scope) -> Result<Self, Fault> {
        if text.chars().count() > LONGEST {
            let message = format!("is longer than {LONGEST} characters");
            return Err(Fault { at: LONGEST + 1, message });
        }
        if let Some(at) = too_deep(text) {
            return Err(Fault { at, message: format!("has more than {DEEPEST} brackets inside each other") });
        }
        let operators = operators(text);
        if let Some(at) = operators.get(MOST_OPERATORS) {
            let message = format!("has {} operators; there may be {MOST_OPERATORS}", operators.len());
            return Err(Fault { at: *at, message });
        }
        let program = Program::compile(text).map_err(|errors| first_fault(text, &errors))?;
        let mut checker = Checker {
            program: &program,
            scope,
            locals: Vec::new(),
            statistics: Vec::new(),
            terms: Vec::new(),
            sets: 0,
        };
        let found = checker.type_of(program.expression())?;
        if found != Type::Bool {
            let at = checker.place(program.expression());
            return Err(Fault { at, message: format!("is {}, not true or false", found.name()) });
        }
        let Checker { statistics, terms, sets, .. } = checker;
        Ok(Self {
            text: text.into(),
            program: Arc::new(program),
            statistics,
            terms,
            takes_elements: sets > 0,
        })
    }

    /// As written.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// The statistics that it names.
    pub fn statistics(&self) -> &[&'static Statistic] {
        &self.statistics
    }

    /// How it uses a statistic.
    pub fn use_of(&self, statistic: &Statistic) -> Use {
        match self.statistics.iter().any(|named| named.name == statistic.name) {
            false => Use::No,
            true if self.takes_elements => Use::Elements,
            true => Use::Whole,
        }
    }

    /// Whether it holds.
    ///
    /// # Errors
    /// Why it cannot be decided, such as a mean of no values.
    pub fn holds(&self, values: &Values) -> Result<bool, String> {
        match self.program.execute(&values.0) {
            Ok(Value::Bool(holds)) => Ok(holds),
            Ok(other) => Err(format!("is {other:?}")),
            Err(ExecutionError::FunctionError { message, .. }) => Err(message),
            Err(ExecutionError::UndeclaredReference(name)) => Err(format!("there are no data for {name}")),
            Err(error) => Err(error.to_string()),
        }
    }

    /// The values that it compares.
    pub fn terms(&self, values: &Values) -> Vec<Term> {
        let value = |expr| match values.0.resolve(expr) {
            Ok(Value::Float(x)) => Some(x),
            Ok(Value::Int(n)) => Some(n as f64),
            _ => None,
        };
        self.terms.iter().map(|(text, expr)| Term { text: text.clone(), value: value(expr) }).collect()
    }
}

impl Values {
    /// Of a network.
    pub fn of_network(state: &State) -> Self {
        Self::of_some(state, |_| Use::Elements)
    }

    /// Of a network, for conditions that use statistics so.
    pub fn of_some(state: &State, used: impl Fn(&Statistic) -> Use) -> Self {
        Self::new(|statistic| {
            // A statistic that nobody reports is not zero: conditions on it cannot be decided.
            let is_told = match statistic.source {
                Source::Host => !state.hosts.is_empty(),
                Source::Link => !state.links.is_empty(),
                Source::Traffic | Source::Topology | Source::Oracle => true,
            };
            let used = used(statistic);
            if used == Use::No || !is_told {
                return None;
            }
            let values = statistic.values(state);
            if statistic.source.is_single() {
                return values.first().copied().map(Value::Float);
            }
            Some(match used {
                Use::Elements => Value::List(Arc::new(values.into_iter().map(Value::Float).collect())),
                _ => Value::Opaque(Arc::new(Numbers(values))),
            })
        })
    }

    /// Of one host.
    pub fn of_host(host: &HostState) -> Self {
        Self::new(|statistic| statistic.of_host(host).map(Value::Float))
    }

    #[expect(
        clippy::disallowed_types,
        reason = "the library's maps are hash maps; names are only looked up in them"
    )]
    fn new(value: impl Fn(&Statistic) -> Option<Value>) -> Self {
        let mut groups: BTreeMap<&str, std::collections::HashMap<String, Value>> = BTreeMap::new();
        for statistic in STATISTICS {
            if let (Some((group, field)), Some(value)) = (statistic.name.split_once('.'), value(statistic)) {
                groups.entry(group).or_default().insert(field.to_owned(), value);
            }
        }
        let mut context = Context::with_env(Arc::clone(&LANGUAGE));
        for (group, fields) in groups {
            context.add_variable_from_value(group, fields);
        }
        // Names of the standard library are refused by the test of this module, not at run time.
        for function in FUNCTIONS {
            let _known = (function.add)(&mut context);
        }
        Self(context)
    }
}

/// A function over a set.
struct Function {
    name: &'static str,
    /// It takes a share from 0 to 1 after the set.
    takes_share: bool,
    add: fn(&mut Context<'static, 'static>) -> Result<(), cel::DeclarationError>,
}

static FUNCTIONS: &[Function] = &[
    Function {
        name: "max",
        takes_share: false,
        add: |c| {
            c.add_function("max", |s: Value| {
                of(&s, "max", |data: &Data<Vec<f64>>| data.iter().copied().fold(f64::NEG_INFINITY, f64::max))
            })
        },
    },
    Function {
        name: "min",
        takes_share: false,
        add: |c| {
            c.add_function("min", |s: Value| {
                of(&s, "min", |data: &Data<Vec<f64>>| data.iter().copied().fold(f64::INFINITY, f64::min))
            })
        },
    },
    Function {
        name: "mean",
        takes_share: false,
        add: |c| c.add_function("mean", |s: Value| of(&s, "mean", mean)),
    },
    Function {
        name: "sum",
        takes_share: false,
        add: |c| c.add_function("sum", |s: Value| numbers(&s).iter().sum::<f64>()),
    },
    Function {
        name: "count",
        takes_share: false,
        add: |c| c.add_function("count", |s: Value| count(&s) as f64),
    },
    Function {
        name: "quantile",
        takes_share: true,
        add: |c| {
            c.add_function("quantile", |s: Value, share: f64| {
                of(&s, "quantile", |data: &Data<Vec<f64>>| data.clone().quantile(share))
            })
        },
    },
];

fn mean(data: &Data<Vec<f64>>) -> f64 {
    data.mean().unwrap_or_default()
}

/// The values of a set that functions take as a whole.
fn whole(set: &Value) -> Option<&[f64]> {
    let Value::Opaque(opaque) = set else { return None };
    let any: &dyn Any = &**opaque;
    any.downcast_ref::<Numbers>().map(|numbers| &*numbers.0)
}

fn numbers(set: &Value) -> Vec<f64> {
    let number = |value: &Value| match value {
        Value::Float(x) => Some(*x),
        Value::Int(n) => Some(*n as f64),
        _ => None,
    };
    match (whole(set), set) {
        (Some(numbers), _) => numbers.to_vec(),
        (None, Value::List(list)) => list.iter().filter_map(number).collect(),
        (None, _) => Vec::new(),
    }
}

fn count(set: &Value) -> usize {
    match set {
        Value::List(list) => list.len(),
        _ => whole(set).map_or(0, <[f64]>::len),
    }
}

fn of(set: &Value, name: &str, number: impl Fn(&Data<Vec<f64>>) -> f64) -> Result<f64, ExecutionError> {
    if count(set) == 0 {
        return Err(ExecutionError::function_error(name, format!("there are no data for {name}")));
    }
    Ok(number(&Data::new(numbers(set))))
}

/// The character at which brackets are too deep.
fn too_deep(text: &str) -> Option<usize> {
    let mut depth = 0_usize;
    text.chars().position(|c| {
        match c {
            '(' | '[' | '{' => depth += 1,
            ')' | ']' | '}' => depth = depth.saturating_sub(1),
            _ => {}
        }
        depth > DEEPEST
    })
}

/// Positions, in characters from 1, of the operators that [`MOST_OPERATORS`] counts.
fn operators(text: &str) -> Vec<usize> {
    let mut inside = false;
    let begins = |(at, c): (usize, char)| {
        let before = std::mem::replace(&mut inside, "+-*/%<>=?".contains(c));
        (inside && !before).then_some(at)
    };
    (1..).zip(text.chars()).filter_map(begins).collect()
}

fn first_fault(text: &str, errors: &cel::ParseErrors) -> Fault {
    let Some(first) = errors.errors.first() else {
        return Fault { at: 1, message: "is not a condition".to_owned() };
    };
    let (line, column) = first.pos;
    let before: usize = text
        .split_inclusive('\n')
        .take(usize::try_from(line - 1).unwrap_or(0))
        .map(|l| l.chars().count())
        .sum();
    let at = before + usize::try_from(column).unwrap_or(1).max(1);
    Fault { at, message: format!("is not a condition: {}", first.msg.trim()) }
}

/// The types of expressions.
#[derive(Clone, PartialEq, Eq, Debug)]
enum Type {
    Bool,
    Int,
    Double,
    Text,
    /// The elements' type; none: of an empty list.
    Set(Option<Box<Type>>),
    /// A group of statistics, such as `link`.
    Group(&'static str),
}

impl Type {
    fn name(&self) -> String {
        match self {
            Self::Bool => "true or false".to_owned(),
            Self::Int => "a whole number".to_owned(),
            Self::Double => "a number".to_owned(),
            Self::Text => "a text".to_owned(),
            Self::Set(_) => "a set: take its max, mean, quantile or another number".to_owned(),
            Self::Group(name) => format!("a group of statistics: write `{name}.` and the name of one"),
        }
    }

    fn is_number(&self) -> bool {
        matches!(self, Self::Int | Self::Double)
    }
}

struct Checker<'a> {
    program: &'a Program,
    scope: Scope,
    locals: Vec<(String, Type)>,
    statistics: Vec<&'static Statistic>,
    terms: Vec<(String, IdedExpr)>,
    /// Sets of statistics that were named, less those that a function takes as a whole.
    sets: usize,
}

impl Checker<'_> {
    fn place(&self, expr: &IdedExpr) -> usize {
        let source = self.program.source_info();
        source.offset_for(expr.id).map_or(1, |(start, _)| start as usize + 1)
    }

    fn fault<T>(&self, expr: &IdedExpr, message: impl Into<String>) -> Result<T, Fault> {
        Err(Fault { at: self.place(expr), message: message.into() })
    }

    fn type_of(&mut self, expr: &IdedExpr) -> Result<Type, Fault> {
        match &expr.expr {
            Expr::Literal(literal) => match literal {
                LiteralValue::Boolean(_) => Ok(Type::Bool),
                LiteralValue::Double(_) => Ok(Type::Double),
                LiteralValue::Int(_) => Ok(Type::Int),
                LiteralValue::String(_) => Ok(Type::Text),
                LiteralValue::Bytes(_) | LiteralValue::Null | LiteralValue::UInt(_) => {
                    self.fault(expr, "is a value that no statistic compares with")
                }
            },
            Expr::Ident(name) => self.name(expr, name),
            Expr::Select(select) if !select.test => {
                let Type::Group(group) = self.type_of(&select.operand)? else {
                    return self.fault(expr, format!("has no field `{}`", select.field));
                };
                self.statistic(expr, &format!("{group}.{}", select.field))
            }
            Expr::List(list) => {
                let mut of = None;
                for element in &list.elements {
                    let found = self.type_of(element)?;
                    if *of.get_or_insert_with(|| found.clone()) != found {
                        return self.fault(element, format!("is {} in a list of others", found.name()));
                    }
                }
                Ok(Type::Set(of.map(Box::new)))
            }
            Expr::Call(call) => {
                if let Some(target) = &call.target {
                    return self.fault(target, format!("has no method `{}`", call.func_name));
                }
                self.call(expr, &call.func_name, &call.args)
            }
            Expr::Comprehension(comprehension) => self.comprehension(comprehension),
            Expr::Select(_) | Expr::Map(_) | Expr::Struct(_) | Expr::Unspecified => {
                self.fault(expr, "is a form that conditions do not have")
            }
        }
    }

    fn name(&self, expr: &IdedExpr, name: &str) -> Result<Type, Fault> {
        if let Some((_, found)) = self.locals.iter().rev().find(|(local, _)| local == name) {
            return Ok(found.clone());
        }
        let group =
            STATISTICS.iter().filter_map(|s| s.name.split_once('.')).find(|(group, _)| *group == name);
        match group {
            Some((group, _)) => Ok(Type::Group(group)),
            None => self.fault(expr, format!("unknown name `{name}`; {}", suggestion(name, self.scope))),
        }
    }

    fn statistic(&mut self, expr: &IdedExpr, name: &str) -> Result<Type, Fault> {
        let Some(statistic) = Statistic::named(name) else {
            return self.fault(expr, format!("unknown statistic `{name}`; {}", suggestion(name, self.scope)));
        };
        if self.scope == Scope::Host && statistic.source != Source::Host {
            let message = format!("`{name}` is not known to an agent; {}", suggestion(name, self.scope));
            return self.fault(expr, message);
        }
        if !self.statistics.iter().any(|known| known.name == name) {
            self.statistics.push(statistic);
        }
        if self.scope == Scope::Host || statistic.source.is_single() {
            self.terms.push((name.to_owned(), expr.clone()));
            return Ok(Type::Double);
        }
        self.sets += 1;
        Ok(Type::Set(Some(Box::new(Type::Double))))
    }

    fn call(&mut self, expr: &IdedExpr, name: &str, args: &[IdedExpr]) -> Result<Type, Fault> {
        let types = args.iter().map(|arg| self.type_of(arg)).collect::<Result<Vec<_>, _>>()?;
        let wrong = |checker: &Self, wanted: &str| {
            let position = types.iter().position(|found| match wanted {
                "truth values" => *found != Type::Bool,
                _ => !found.is_number(),
            });
            let (arg, found) = position.map_or((expr, None), |at| (&args[at], types.get(at)));
            let found = found.map_or_else(String::new, |found| format!(", and this is {}", found.name()));
            checker.fault(arg, format!("`{}` is for {wanted}{found}", symbol(name)))
        };
        match (name, types.as_slice()) {
            (op::LOGICAL_AND | op::LOGICAL_OR, [Type::Bool, Type::Bool])
            | (op::LOGICAL_NOT | op::NOT_STRICTLY_FALSE, [Type::Bool]) => Ok(Type::Bool),
            (op::LOGICAL_AND | op::LOGICAL_OR | op::LOGICAL_NOT, _) => wrong(self, "truth values"),
            (op::LESS | op::LESS_EQUALS | op::GREATER | op::GREATER_EQUALS, [a, b])
                if a.is_number() && b.is_number() =>
            {
                Ok(Type::Bool)
            }
            (op::EQUALS | op::NOT_EQUALS, [a, b])
                if a == b && *a != Type::Text || a.is_number() && b.is_number() =>
            {
                Ok(Type::Bool)
            }
            (op::ADD, [Type::Set(a), Type::Set(b)]) => Ok(Type::Set(a.clone().or_else(|| b.clone()))),
            (op::ADD | op::SUBSTRACT | op::MULTIPLY | op::DIVIDE, [a, b]) if a.is_number() && a == b => {
                Ok(a.clone())
            }
            (op::ADD | op::SUBSTRACT | op::MULTIPLY | op::DIVIDE, [a, b])
                if a.is_number() && b.is_number() =>
            {
                let whole = usize::from(*b == Type::Int);
                self.fault(
                    &args[whole],
                    format!("`{}` is for two numbers of one kind: write 2.0 for 2", symbol(name)),
                )
            }
            (op::MODULO, [Type::Int, Type::Int]) => Ok(Type::Int),
            (op::NEGATE, [a]) if a.is_number() => Ok(a.clone()),
            (op::CONDITIONAL, [Type::Bool, a, b]) if a == b => Ok(a.clone()),
            (op::CONDITIONAL, [Type::Bool, Type::Set(a), Type::Set(b)]) if a.is_none() || b.is_none() => {
                Ok(Type::Set(a.clone().or_else(|| b.clone())))
            }
            (op::CONDITIONAL, _) => self.fault(expr, "`? :` needs a truth value and two values of one kind"),
            _ if name.contains('_') || name == op::IN => wrong(self, "numbers"),
            _ => self.function(expr, name, args, &types),
        }
    }

    fn function(
        &mut self,
        expr: &IdedExpr,
        name: &str,
        args: &[IdedExpr],
        types: &[Type],
    ) -> Result<Type, Fault> {
        let Some(function) = FUNCTIONS.iter().find(|function| function.name == name) else {
            let names: Vec<&str> = FUNCTIONS.iter().map(|function| function.name).collect();
            return self.fault(expr, format!("unknown function `{name}`; there are {}", names.join(", ")));
        };
        let is_set = |found: &Type| match found {
            Type::Set(of) => of.as_ref().is_none_or(|of| of.is_number()),
            _ => false,
        };
        match types {
            [set] if is_set(set) && !function.takes_share => {}
            [set, Type::Double] if is_set(set) && function.takes_share => {
                if let Expr::Literal(LiteralValue::Double(share)) = &args[1].expr
                    && !(0.0..=1.0).contains(share.inner())
                {
                    return self.fault(&args[1], "is not a share from 0.0 to 1.0");
                }
            }
            _ => {
                let form = if function.takes_share { "set, share from 0.0 to 1.0" } else { "set" };
                let hint = match self.scope {
                    Scope::Network => "",
                    Scope::Host => "; an agent compares single values of its own host",
                };
                return self.fault(expr, format!("write `{name}({form})`{hint}"));
            }
        }
        // No other selection has the type of a set.
        self.sets -= usize::from(matches!(args[0].expr, Expr::Select(_)));
        if self.locals.is_empty()
            && let Some(text) = call_text(name, args)
        {
            self.terms.push((text, expr.clone()));
        }
        Ok(Type::Double)
    }

    /// `set.all(x, ...)`, `exists`, `exists_one`, `filter` and `map`.
    fn comprehension(&mut self, of: &ComprehensionExpr) -> Result<Type, Fault> {
        let range = self.type_of(&of.iter_range)?;
        let Type::Set(Some(element)) = range else {
            return self.fault(&of.iter_range, format!("is {}, and not a set", range.name()));
        };
        let accumulator = self.type_of(&of.accu_init)?;
        let depth = self.locals.len();
        self.locals.push((of.iter_var.clone(), *element));
        self.locals.push((of.accu_var.clone(), accumulator));
        let condition = self.type_of(&of.loop_cond)?;
        let step = self.type_of(&of.loop_step)?;
        if condition != Type::Bool {
            return self.fault(&of.loop_cond, format!("is {}, not true or false", condition.name()));
        }
        if let Some((_, accumulator)) = self.locals.last_mut() {
            *accumulator = step;
        }
        let result = self.type_of(&of.result)?;
        self.locals.truncate(depth);
        Ok(result)
    }
}

/// What might have been meant by `name`.
fn suggestion(name: &str, scope: Scope) -> String {
    let known: Vec<&str> = STATISTICS
        .iter()
        .filter(|statistic| scope == Scope::Network || statistic.source == Source::Host)
        .map(|statistic| statistic.name)
        .collect();
    crate::file::suggestion(name, &known)
}

/// An operator as written.
fn symbol(name: &str) -> String {
    name.replace(['_', '@'], "")
}

fn call_text(name: &str, args: &[IdedExpr]) -> Option<String> {
    let text = |arg: &IdedExpr| match &arg.expr {
        Expr::Select(select) => match &select.operand.expr {
            Expr::Ident(group) => Some(format!("{group}.{}", select.field)),
            _ => None,
        },
        Expr::Literal(LiteralValue::Double(x)) => Some(format!("{:?}", x.inner())),
        _ => None,
    };
    let args = args.iter().map(text).collect::<Option<Vec<_>>>()?;
    Some(format!("{name}({})", args.join(", ")))
}

#[cfg(test)]
mod tests {
    use super::super::statistic::LinkState;
    use super::*;

    fn state() -> State {
        let link = |utilization| LinkState { name: "a->b".to_owned(), utilization, ..LinkState::default() };
        let host = |live| HostState { name: "a".to_owned(), live, ..HostState::default() };
        State {
            coverage: 0.95,
            links: [0.1, 0.2, 0.9].map(link).into(),
            hosts: [3.0, 5.0].map(host).into(),
            ..State::default()
        }
    }

    fn holds(text: &str) -> Result<bool, String> {
        let condition = Condition::compile(text, Scope::Network).unwrap_or_else(|e| panic!("{text}: {e}"));
        assert_eq!(condition.takes_elements, text.contains("u, "), "{text}");
        let [all, used] = [
            Values::of_network(&state()),
            Values::of_some(&state(), |statistic| condition.use_of(statistic)),
        ];
        assert_eq!(condition.terms(&all), condition.terms(&used), "{text}");
        let holds = condition.holds(&used);
        assert_eq!(condition.holds(&all), holds, "{text}");
        holds
    }

    #[test]
    fn numbers_of_sets_are_compared() {
        for (text, expected) in [
            ("max(link.utilization) < 0.7", false),
            ("max(link.utilization) > 0.89 && min(link.utilization) < 1", true),
            ("mean(link.utilization) == 0.4 || mean(link.utilization) < 0.41", true),
            ("quantile(link.utilization, 0.5) <= 0.2001", true),
            ("sum(flows.live) == 8", true),
            ("count(flows.live) >= 2 && oracle.coverage >= 0.9", true),
            ("link.utilization.exists(u, u > 0.8)", true),
            ("link.utilization.all(u, u > 0.15)", false),
            ("count(link.utilization.filter(u, u > 0.15)) == 2.0", true),
            ("max(link.utilization.map(u, u * 2.0)) > 1.7", true),
            ("max(link.utilization) > 1 || link.utilization.exists(u, u > max(flows.live))", false),
            ("!(max(flows.live) - min(flows.live) > 2.0)", true),
            ("(oracle.coverage > 0.5 ? max(flows.live) : 0.0) == 5", true),
            ("true", true),
        ] {
            assert_eq!(holds(text), Ok(expected), "{text}");
        }
    }

    #[test]
    fn no_data_is_no_answer() {
        let condition = Condition::compile("max(link.utilization) < 0.7", Scope::Network).unwrap();
        let nothing = Values::of_network(&State::default());
        assert_eq!(condition.holds(&nothing), Err("there are no data for link".to_owned()));
        // A sum of nothing would be zero.
        let sum = Condition::compile("sum(flows.live) < 20", Scope::Network).unwrap();
        assert_eq!(sum.holds(&nothing), Err("there are no data for flows".to_owned()));
        assert_eq!(condition.terms(&nothing)[0].value, None);
        let rtt = Condition::compile("host.rtt < 0.001", Scope::Host).unwrap();
        assert!(rtt.holds(&Values::of_host(&HostState::default())).is_err());
    }

    #[test]
    fn terms_say_what_was_compared() {
        let condition = Condition::compile(
            "max(link.utilization) < 0.7 && quantile(flows.live, 1.0) > 1",
            Scope::Network,
        );
        let terms = condition.unwrap().terms(&Values::of_network(&state()));
        assert_eq!((terms[0].text.as_str(), terms[0].value), ("max(link.utilization)", Some(0.9)));
        assert_eq!(terms[1].text, "quantile(flows.live, 1.0)");
    }

    #[test]
    fn mistakes_are_named_with_their_place() {
        for (text, at, said) in [
            (
                "max(link.utilisation) < 0.7",
                9,
                "unknown statistic `link.utilisation`; did you mean `link.utilization`?",
            ),
            ("max(links.utilization) < 0.7", 5, "unknown name `links`"),
            ("link.utilization < 0.7", 5, "`<` is for numbers, and this is a set"),
            ("max(link.utilization)", 4, "is a number, not true or false"),
            ("max(link.utilization) && true", 4, "`&&` is for truth values"),
            ("median(link.utilization) < 1", 7, "unknown function `median`; there are max"),
            ("quantile(link.utilization) < 1", 9, "write `quantile(set, share from 0.0 to 1.0)`"),
            ("quantile(link.utilization, 99.0) < 1", 28, "is not a share"),
            ("mean(flows.live) * 2 > 4", 20, "write 2.0 for 2"),
            ("max(link.utilization) < 'much'", 25, "and this is a text"),
            ("max(link.utilization) <", 24, "is not a condition"),
            ("link.utilization.size() > 1", 5, "has no method `size`"),
            ("{'a': 1}.a == 1", 1, "is a form that conditions do not have"),
        ] {
            let fault = Condition::compile(text, Scope::Network).expect_err(text);
            assert!(fault.message.contains(said), "{text}: {fault}");
            assert_eq!(fault.at, at, "{text}: {fault}");
        }
        let fault =
            Condition::compile("max(link.utilization) < 0.7", Scope::Host).expect_err("of the network");
        assert!(fault.message.contains("is not known to an agent"), "{fault}");
    }

    /// Agents read conditions from the network: no text may exhaust the stack.
    #[test]
    fn long_and_deep_texts_are_read_or_refused() {
        for part in
            ["(", "[", "{", "!", "-", "a?", "a?b:", "1+", "a.", "f(", "x[", "true&&", "true||", "1==", "'"]
        {
            for end in ["", "1", "true"] {
                let text = part.repeat((LONGEST - end.len()) / part.len()) + end;
                let _ = Condition::compile(&text, Scope::Network);
            }
        }
        let sum = "1+".repeat(MOST_OPERATORS / DEEPEST);
        let deep = format!("({sum}").repeat(DEEPEST) + "1" + &")".repeat(DEEPEST);
        assert!(Condition::compile(&deep, Scope::Network).unwrap_err().message.contains("is a whole number"));
        let deep = "(".repeat(DEEPEST) + "true" + &")".repeat(DEEPEST);
        assert!(Condition::compile(&deep, Scope::Network).is_ok());
        assert!(
            Condition::compile(&"(".repeat(500), Scope::Network).unwrap_err().message.contains("brackets")
        );
        assert!(Condition::compile(&" ".repeat(600), Scope::Network).unwrap_err().message.contains("longer"));
    }

    #[test]
    fn limits_are_in_characters() {
        let text = |names: usize| format!("'{}' == ''", "é".repeat(names));
        let compile = |text: &str| Condition::compile(text, Scope::Network);
        let longest = compile(&text(LONGEST - 8)).expect_err("of texts");
        assert!(longest.message.contains("this is a text"), "{longest}");
        let longer = compile(&text(LONGEST - 7)).expect_err("longer");
        assert_eq!((longer.at, longer.message.as_str()), (513, "is longer than 512 characters"));
        let most = format!("{}1.0 >= 0.0", "1.0 + ".repeat(MOST_OPERATORS - 1));
        assert!(compile(&most).is_ok());
        let more = compile(&format!("'é' < 'a' || {most}")).expect_err("one more");
        assert_eq!((more.at, more.message.as_str()), (156, "has 25 operators; there may be 24"));
    }

    #[test]
    fn own_functions_do_not_hide_those_of_the_language() {
        for function in FUNCTIONS {
            assert_eq!((function.add)(&mut Context::default()), Ok(()), "{}", function.name);
        }
    }

    proptest::proptest! {
        #[test]
        fn no_text_makes_the_reader_fail_otherwise_than_by_an_error(text in "[a-z.()<>=&|! 0-9,'\\[\\]+*?:-]{0,60}") {
            if let Ok(condition) = Condition::compile(&text, Scope::Network) {
                let _ = condition.holds(&Values::of_network(&state()));
            }
        }
    }
}
