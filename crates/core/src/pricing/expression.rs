//! The expression that counts the units of a metered tool from a call's arguments.
//!
//! It is Common Expression Language over one variable, `args`, with the standard library and `math.*`. What
//! keeps an evaluation bounded: expressions are short, know only the functions below, and a walk over a list
//! (`all`, `exists`, `filter`, `map`) sees its element but neither `args` nor another walk. Whole numbers in
//! the arguments are integers, whether they were written `2`, `2.0` or `2e0`; other numbers are doubles and
//! must be made whole by the expression (`math.ceil`).

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, LazyLock};

use cel::common::ast::{ComprehensionExpr, EntryExpr, Expr, IdedExpr};
use cel::objects::{Key, Map};
use cel::{Context, Env, ExecutionError, Program, Value};

use super::PriceError;
use super::decimal::Decimal;

/// Longest expression.
const MAX_EXPRESSION_CHARS: usize = 500;
/// Deepest nesting of arguments that is looked at.
const MAX_ARGS_DEPTH: usize = 64;
/// More units than any call has.
pub(super) const MAX_UNITS: u64 = 1_000_000_000_000;

/// Functions an expression may call, beside operators and macros.
const FUNCTIONS: [&str; 18] = [
    "size",
    "int",
    "uint",
    "double",
    "string",
    "bool",
    "contains",
    "startsWith",
    "endsWith",
    "ceil",
    "floor",
    "round",
    "trunc",
    "abs",
    "math.@max",
    "math.@min",
    "orValue",
    "hasValue",
];

static ENV: LazyLock<Result<Arc<Env>, String>> = LazyLock::new(|| {
    let mut env = Env::stdlib();
    env.add_extension(cel::extensions::math)
        .map_err(|error| error.to_string())?;
    Ok(Arc::new(env))
});

fn environment() -> Result<&'static Arc<Env>, PriceError> {
    ENV.as_ref().map_err(|error| PriceError::invalid(error.clone()))
}

/// A checked expression.
pub(super) struct UnitsExpression {
    source: String,
    program: Program,
    reads_args: bool,
}

impl fmt::Debug for UnitsExpression {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("UnitsExpression").field(&self.source).finish()
    }
}

impl UnitsExpression {
    /// Compiles and checks `source`.
    pub(super) fn compile(source: &str) -> Result<Self, PriceError> {
        if source.chars().count() > MAX_EXPRESSION_CHARS {
            return Err(PriceError::invalid(format!(
                "units is longer than {MAX_EXPRESSION_CHARS} characters"
            )));
        }
        let program = environment()?
            .compile(source)
            .map_err(|error| PriceError::invalid(format!("units is no valid expression: {error}")))?;
        let mut check = Check {
            scope: vec!["args", "math"],
            reads_args: false,
        };
        check
            .expression(program.expression(), false)
            .map_err(|fault| PriceError::invalid(format!("units is no usable expression: {fault}")))?;
        let reads_args = check.reads_args;
        Ok(Self {
            source: source.to_owned(),
            program,
            reads_args,
        })
    }

    /// Whether the result can differ between calls.
    pub(super) const fn reads_args(&self) -> bool {
        self.reads_args
    }

    /// The number of units for `args`.
    pub(super) fn units(&self, args: &serde_json::Value) -> Result<u64, PriceError> {
        let mut context = Context::with_env(Arc::clone(environment()?));
        context.add_variable_from_value("args", to_cel(args, MAX_ARGS_DEPTH)?);
        match self.program.execute(&context) {
            Ok(value) => whole_units(&value),
            Err(error) => Err(execution_error(&error)),
        }
    }
}

/// The engine's messages can hold the arguments, so that none of them is passed on.
fn execution_error(error: &ExecutionError) -> PriceError {
    if let ExecutionError::NoSuchKey(name) = error {
        let name: String = name.chars().filter(|c| !c.is_control()).take(64).collect();
        return PriceError::bad_arguments(format!(
            "the price of this call depends on the argument \"{name}\", which is missing"
        ));
    }
    PriceError::bad_arguments("the price of this call cannot be computed from these arguments")
}

/// The result as units: whole, not negative, not absurd.
fn whole_units(value: &Value) -> Result<u64, PriceError> {
    let written = match value {
        Value::Int(units) => units.to_string(),
        Value::UInt(units) => units.to_string(),
        Value::Float(units) => units.to_string(),
        Value::List(_)
        | Value::Map(_)
        | Value::Function(..)
        | Value::String(_)
        | Value::Bytes(_)
        | Value::Bool(_)
        | Value::Opaque(_)
        | Value::Struct(_)
        | Value::Null => return Err(PriceError::bad_arguments("the arguments give no number of units")),
    };
    if written.starts_with('-') && value.is_zero() {
        return Ok(0);
    }
    if written.starts_with('-') {
        return Err(PriceError::bad_arguments(
            "the arguments give a negative number of units",
        ));
    }
    let units = match Decimal::parse(&written).and_then(|number| number.scaled(0)) {
        Some((units, true)) => u64::try_from(units).ok(),
        Some((_, false)) => {
            return Err(PriceError::bad_arguments(
                "the arguments give a fraction of a unit",
            ));
        }
        None => None,
    };
    units
        .filter(|units| *units <= MAX_UNITS)
        .ok_or_else(|| PriceError::bad_arguments("the arguments give more units than a call can have"))
}

/// JSON as the engine's value. Not the engine's own conversion, which makes unsigned integers that its
/// arithmetic does not mix with literals.
fn to_cel(json: &serde_json::Value, depth: usize) -> Result<Value, PriceError> {
    let Some(depth) = depth.checked_sub(1) else {
        return Err(PriceError::bad_arguments("the arguments are nested too deeply"));
    };
    Ok(match json {
        serde_json::Value::Null => Value::Null,
        serde_json::Value::Bool(value) => Value::Bool(*value),
        serde_json::Value::Number(number) => number_to_cel(number),
        serde_json::Value::String(text) => Value::String(Arc::new(text.clone())),
        serde_json::Value::Array(items) => {
            let items = items
                .iter()
                .map(|item| to_cel(item, depth))
                .collect::<Result<Vec<_>, _>>()?;
            Value::List(Arc::new(items))
        }
        serde_json::Value::Object(members) => {
            let members = members
                .iter()
                .map(|(name, value)| Ok((Key::from(name.clone()), to_cel(value, depth)?)))
                .collect::<Result<HashMap<_, _>, PriceError>>()?;
            Value::Map(Map {
                map: Arc::new(members),
            })
        }
    })
}

fn number_to_cel(number: &serde_json::Number) -> Value {
    let whole = match Decimal::parse(&number.to_string()).and_then(|decimal| decimal.scaled(0)) {
        Some((value, true)) => Some(value),
        Some((_, false)) | None => None,
    };
    if let Some(value) = whole.and_then(|value| i64::try_from(value).ok()) {
        return Value::Int(value);
    }
    if let Some(value) = number.as_u64() {
        return Value::UInt(value);
    }
    number.as_f64().map_or(Value::Null, Value::Float)
}

/// Walks a parsed expression and refuses what it must not do, so that a mistake is found when the price is
/// configured and not when a customer calls.
struct Check<'e> {
    scope: Vec<&'e str>,
    reads_args: bool,
}

impl<'e> Check<'e> {
    fn all<I: IntoIterator<Item = &'e IdedExpr>>(
        &mut self,
        expressions: I,
        in_walk: bool,
    ) -> Result<(), String> {
        expressions
            .into_iter()
            .try_for_each(|expression| self.expression(expression, in_walk))
    }

    fn expression(&mut self, expression: &'e IdedExpr, in_walk: bool) -> Result<(), String> {
        match &expression.expr {
            Expr::Unspecified | Expr::Literal(_) => Ok(()),
            Expr::Ident(name) => self.name(name),
            Expr::Select(select) => self.expression(&select.operand, in_walk),
            Expr::List(list) => self.all(&list.elements, in_walk),
            Expr::Call(call) => {
                Self::function(&call.func_name)?;
                self.all(call.target.as_deref().into_iter().chain(&call.args), in_walk)
            }
            Expr::Map(map) => {
                let entries = map.entries.iter().flat_map(|entry| match &entry.expr {
                    EntryExpr::MapEntry(entry) => vec![&entry.key, &entry.value],
                    EntryExpr::StructField(field) => vec![&field.value],
                });
                self.all(entries, in_walk)
            }
            Expr::Struct(_) => Err("it makes a message".to_owned()),
            Expr::Comprehension(walk) => self.walk(walk, in_walk),
        }
    }

    fn walk(&mut self, walk: &'e ComprehensionExpr, in_walk: bool) -> Result<(), String> {
        if in_walk {
            return Err("it walks a list inside another walk".to_owned());
        }
        self.expression(&walk.iter_range, false)?;
        // INVARIANT: each step sees its own element and not all arguments, so that the work of a walk grows with
        // the size of the arguments and not with its square.
        let element = vec!["math", walk.iter_var.as_str(), walk.accu_var.as_str()];
        let outer = std::mem::replace(&mut self.scope, element);
        self.scope.extend(walk.iter_var2.as_deref());
        let steps = self.all(
            [&walk.accu_init, &walk.loop_cond, &walk.loop_step, &walk.result],
            true,
        );
        self.scope = outer;
        steps
    }

    fn name(&mut self, name: &str) -> Result<(), String> {
        if !self.scope.contains(&name) {
            return Err(format!("it names {name:?}, which is not known there"));
        }
        self.reads_args |= name == "args";
        Ok(())
    }

    fn function(name: &str) -> Result<(), String> {
        let operator = name.starts_with(|c: char| !c.is_ascii_alphabetic());
        if operator || FUNCTIONS.contains(&name) {
            return Ok(());
        }
        Err(format!("it calls {name:?}, which is not available"))
    }
}
