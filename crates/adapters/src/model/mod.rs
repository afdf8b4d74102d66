//! Models by name: `provider/model`, where the provider is `scripted` or an endpoint of the configuration.

mod chat;
mod endpoint;
mod messages;
mod rate;
mod scripted;
mod sse;
mod stream;
mod told;

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use aetheris_core::event::Failure;
use aetheris_runtime::ports::{Heard, ModelAnswer, ModelError, ModelRequest, Models};
use futures_util::future::BoxFuture;

use crate::secret::Secret;
use crate::{BuildError, OF_SERVER, OF_WORKER};
use endpoint::Endpoint;
pub use rate::RateLimits;
pub use scripted::Script;
use scripted::{SCRIPTED, Scripts};

/// How a provider is spoken to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Dialect {
    /// OpenAI's chat completions, which most servers speak.
    #[default]
    ChatCompletions,
    /// Anthropic's messages.
    Messages,
}

impl Dialect {
    /// What is appended to the address.
    const fn path(self) -> &'static str {
        match self {
            Self::ChatCompletions => "/chat/completions",
            Self::Messages => "/messages",
        }
    }
}

/// A server that models are asked at.
///
/// Its address is the operator's, so that the rules for tools' addresses do not apply to it: a model may
/// well run on this machine.
#[derive(Debug, Clone)]
pub struct ModelEndpoint {
    /// The key that it is sent, in the header of its dialect.
    pub api_key: Option<Secret>,
    /// Where the key came from, for messages: the name of an environment variable.
    pub api_key_env: Option<String>,
    /// Or of a file.
    pub api_key_file: Option<PathBuf>,
    /// What the path of its dialect is appended to.
    pub base_url: String,
    /// How it is spoken to.
    pub dialect: Dialect,
    /// How many questions may be under way at once, of this process; any number without one.
    pub max_concurrent: Option<usize>,
    /// The provider's name, the part of `provider/model` before the first slash.
    pub name: String,
    /// How often each of its models is asked, by this process.
    pub rate: RateLimits,
    /// Whether answers are asked for as streams.
    pub stream: bool,
    /// Longest time of one call; a request may ask for less.
    pub timeout: Duration,
}

/// The models of this process.
#[derive(Debug)]
pub struct ModelBook {
    endpoints: BTreeMap<String, Endpoint>,
    scripts: Scripts,
}

impl ModelBook {
    /// Starts with the built-in scripts and no endpoint.
    #[must_use]
    pub fn builder() -> ModelBookBuilder {
        ModelBookBuilder { endpoints: Vec::new(), scripts: Scripts::default() }
    }

    /// `whose` configuration is asked is said in the error.
    fn provider<'a>(&self, model: &'a str, whose: &str) -> Result<(Provider<'_>, &'a str), String> {
        let (provider, model) = model
            .split_once('/')
            .filter(|(provider, model)| !provider.is_empty() && !model.is_empty())
            .ok_or_else(|| format!("`{model}` does not name a model: expected `provider/model`"))?;
        if provider == SCRIPTED {
            self.scripts.knows(model)?;
            return Ok((Provider::Scripted(&self.scripts), model));
        }
        match self.endpoints.get(provider) {
            Some(endpoint) => Ok((Provider::Endpoint(endpoint), model)),
            None => Err(format!(
                "there is no model provider `{provider}`; `models` of {whose} has: {}",
                listed(self.endpoints.keys().map(String::as_str).chain([SCRIPTED]))
            )),
        }
    }
}

enum Provider<'a> {
    Endpoint(&'a Endpoint),
    Scripted(&'a Scripts),
}

impl Models for ModelBook {
    fn complete<'a>(
        &'a self,
        request: ModelRequest,
        heard: Heard<'a>,
    ) -> BoxFuture<'a, Result<ModelAnswer, ModelError>> {
        Box::pin(async move {
            let (provider, model) =
                self.provider(&request.model, OF_WORKER).map_err(|problem| permanent("unknown_model", problem))?;
            match provider {
                Provider::Endpoint(endpoint) => endpoint.complete(model, &request, heard).await,
                Provider::Scripted(scripts) => scripts.complete(model, &request, heard),
            }
        })
    }

    fn knows(&self, model: &str) -> Result<(), String> {
        self.provider(model, OF_SERVER).map(drop)
    }
}

/// Collects what a [`ModelBook`] is made of.
#[derive(Debug)]
pub struct ModelBookBuilder {
    endpoints: Vec<ModelEndpoint>,
    scripts: Scripts,
}

impl ModelBookBuilder {
    /// Adds a provider.
    #[must_use]
    pub fn endpoint(mut self, endpoint: ModelEndpoint) -> Self {
        self.endpoints.push(endpoint);
        self
    }

    /// Adds `scripted/{name}`, in place of a built-in script of that name.
    #[must_use]
    pub fn script(mut self, name: impl Into<String>, script: Script) -> Self {
        self.scripts.insert(name.into(), script);
        self
    }

    /// The models.
    ///
    /// # Errors
    /// Two providers have one name, an address is not one, or the HTTP client cannot be made.
    pub fn build(self) -> Result<ModelBook, BuildError> {
        let mut endpoints = BTreeMap::new();
        if !self.endpoints.is_empty() {
            let client = endpoint::client()?;
            for endpoint in self.endpoints {
                let name = endpoint.name.clone();
                let is_taken = name == SCRIPTED || name.contains('/') || endpoints.contains_key(&name);
                if is_taken {
                    return Err(BuildError::NameTaken(name));
                }
                endpoints.insert(name, Endpoint::new(endpoint, client.clone())?);
            }
        }
        Ok(ModelBook { endpoints, scripts: self.scripts })
    }
}

fn permanent(code: &str, message: impl Into<String>) -> ModelError {
    ModelError::new(Failure::new(code, message), false)
}

fn retryable(code: &str, message: impl Into<String>) -> ModelError {
    ModelError::new(Failure::new(code, message), true)
}

fn listed<'a>(names: impl Iterator<Item = &'a str>) -> String {
    let mut text = String::new();
    for (position, name) in names.enumerate() {
        let comma = if position == 0 { "" } else { ", " };
        // Writing to a text does not fail.
        let _ = fmt::Write::write_fmt(&mut text, format_args!("{comma}`{name}`"));
    }
    text
}
