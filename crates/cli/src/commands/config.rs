//! `config show` and `config check`.

use std::path::Path;

use serde_json::{Map, Value, json};

use super::Context;
use crate::args;
use crate::config::{self, Origin};
use crate::error::{Error, counted};
use crate::exit::Exit;
use crate::render::safe::one_line;
use crate::render::{Table, Tone, wrap};

pub(super) fn run(command: &args::Config, context: &Context) -> Result<Exit, Error> {
    match command {
        args::Config::Show { config: file } => {
            let config = config::load(file.as_deref(), &context.env, &[]).map_err(Error::Config)?;
            tell_unread(file.as_deref(), context);
            show(&config, context)
        }
        args::Config::Check { config: file } => match config::load(file.as_deref(), &context.env, &[]) {
            Ok(config) => {
                let missing = missing_secrets(&config, context);
                if !missing.is_empty() {
                    return wrong(&missing, context);
                }
                tell_unread(file.as_deref(), context);
                if context.out.json {
                    context.out.value(&json!({ "ok": true, "errors": [] }))?;
                } else {
                    context.out.line("the configuration is valid")?;
                }
                Ok(Exit::Done)
            }
            Err(mistakes) => wrong(&mistakes, context),
        },
    }
}

/// The name that `init` gives a configuration. It is read where `--config` names it, and nowhere by itself.
const CUSTOMARY: &str = "aetheris.yaml";

/// That a configuration stands in this folder and was not read: whoever forgot `--config` gets the defaults.
pub(super) fn tell_unread(given: Option<&Path>, context: &Context) {
    if given.is_none() && Path::new(CUSTOMARY).is_file() {
        context.out.note(&format!("./{CUSTOMARY} was not read: add --config {CUSTOMARY}"));
    }
}

/// What cannot be read here: without a key of a model no process with this configuration that runs steps would start, and
/// without a variable of a tool its calls would fail for good.
fn missing_secrets(config: &config::Config, context: &Context) -> Vec<config::Mistake> {
    let origin =
        |key: &str| config.settings.iter().find(|setting| setting.key == key).map(|found| found.origin.clone());
    let missing = |(name, model): (&String, &config::Model)| {
        let message = context.env.secret(&model.api_key()?).err()?;
        let place = |leaf: &str| {
            let key = format!("models.{name}.{leaf}");
            Some((origin(&key)?, key))
        };
        let (origin, key) = place("api_key_env").or_else(|| place("api_key_file"))?;
        Some(config::Mistake { origin, key, message })
    };
    let unset = config.unset_names(&context.env).filter_map(|name| {
        let message = format!("the environment variable {name} is not set: {}", config::UNSET);
        Some(config::Mistake { origin: origin("tools.env")?, key: "tools.env".to_owned(), message })
    });
    config.models.iter().filter_map(missing).chain(unset).collect()
}

fn show(config: &config::Config, context: &Context) -> Result<Exit, Error> {
    if context.out.json {
        let entry = |setting: &config::Setting| {
            (setting.key.clone(), json!({ "value": setting.value, "origin": setting.origin }))
        };
        let settings: Map<String, Value> = config.settings.iter().map(entry).collect();
        context.out.value(&settings)?;
        return Ok(Exit::Done);
    }
    let mut table = Table::new(&["KEY", "~VALUE", "FROM"]);
    for setting in &config.settings {
        let value = match &setting.value {
            Value::String(text) => text.clone(),
            other => other.to_string(),
        };
        let origin = setting.origin.to_string();
        let origin = match setting.origin {
            Origin::Default => context.out.style.paint(Tone::Dim, &origin),
            Origin::File { .. } | Origin::Env(_) | Origin::Flag(_) => origin,
        };
        table.row(vec![setting.key.clone(), one_line(&value), origin]);
    }
    context.out.text(&table.render(context.out.style))?;
    Ok(Exit::Done)
}

fn wrong(mistakes: &[config::Mistake], context: &Context) -> Result<Exit, Error> {
    if context.out.json {
        let errors: Vec<Value> = mistakes
            .iter()
            .map(|mistake| json!({ "origin": mistake.origin, "key": mistake.key, "message": mistake.message }))
            .collect();
        context.out.value(&json!({ "ok": false, "errors": errors }))?;
        return Ok(Exit::CheckFailed);
    }
    for mistake in mistakes {
        context.out.line(&wrap(&one_line(&mistake.to_string()), context.out.style.columns, 0, 2))?;
    }
    context.out.line(&counted(mistakes.len(), "mistake"))?;
    Ok(Exit::CheckFailed)
}
