//! Calls tools: functions of this process and HTTP requests.

use std::collections::BTreeMap;
use std::fmt;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use aetheris_core::event::Failure;
use aetheris_core::id::{IdempotencyKey, JobId, ToolName};
use aetheris_core::json::Json;
use aetheris_core::lease::Fence;
use aetheris_core::path::StepPath;
use aetheris_core::plan::{Tool, ToolKind};
use aetheris_runtime::ports::{ToolCall, ToolOutcome, Tools};
use futures_util::FutureExt;
use futures_util::future::BoxFuture;

use crate::exchange::{Deadline, Elapsed};
use crate::guard::{Guard, Lookup, SystemLookup};
use crate::http::HttpTools;
use crate::own::{Nowhere, OwnAddresses};
use crate::secret::EnvSource;
use crate::{BuildError, IpNet, builtin};

/// What a function gets.
#[derive(Debug, Clone)]
pub struct FunctionCall {
    /// The fencing token; a function that keeps state refuses older ones.
    pub fence: Fence,
    /// The input, the same at every try.
    pub input: Json,
    /// The job.
    pub job: JobId,
    /// The idempotency key, the same at every try.
    pub key: IdempotencyKey,
    /// The step.
    pub node: StepPath,
    /// The tool's name in the agent's profile.
    pub tool: ToolName,
    /// The try of this step: 1, 2, …
    pub try_number: u32,
}

type Function = Arc<dyn Fn(FunctionCall) -> BoxFuture<'static, ToolOutcome> + Send + Sync>;

/// Why a tool could never be called from here.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unusable {
    /// Where: a JSON pointer into the tool.
    pub place: String,
    /// What is wrong, in words.
    pub why: String,
}

/// The tools of this process.
pub struct Toolbox {
    functions: BTreeMap<String, Function>,
    http: HttpTools,
}

impl Toolbox {
    /// Starts with the built-in functions, public addresses, and no environment variable.
    #[must_use]
    pub fn builder() -> ToolboxBuilder {
        ToolboxBuilder {
            env: EnvSource::default(),
            functions: Vec::new(),
            guard: Guard::default(),
            lookup: Arc::new(SystemLookup),
            own: Arc::new(Nowhere),
        }
    }

    /// Whether a function of that name is registered, built-ins included.
    #[must_use]
    pub fn has_function(&self, name: &str) -> bool {
        self.functions.contains_key(name)
    }

    /// Why a tool of an agent could never be called from here, sentence by sentence: it names a function that
    /// is not registered, an environment variable that is not allowed, or an address that is forbidden.
    #[must_use]
    pub fn unusable(&self, name: &ToolName, tool: &Tool) -> Vec<Unusable> {
        match &tool.kind {
            ToolKind::Function(function) if !self.has_function(function) => {
                let why = format!("the tool `{name}` names the function `{function}`, which this server does not have");
                vec![Unusable { place: "/function".to_owned(), why }]
            }
            ToolKind::Function(_) | ToolKind::Human(_) => Vec::new(),
            ToolKind::Http(http) => {
                let named = |found: Unusable| Unusable { why: format!("the tool `{name}`: {}", found.why), ..found };
                self.http.unusable(http).into_iter().map(named).collect()
            }
        }
    }

    /// Calls a function. Its panic is caught where panics unwind; where they abort, the process ends, and
    /// recovery finds a call that was started and not finished, which means the same.
    async fn call_function(&self, name: &str, call: ToolCall) -> ToolOutcome {
        let Some(function) = self.functions.get(name) else {
            let message =
                format!("no function `{name}` is registered in this process; its workers need to be built with it");
            return ToolOutcome::NotSent { error: Failure::new("unknown_function", message), permanent: true };
        };
        let timeout = call.timeout;
        let work = async move { function(FunctionCall::from(call)).await };
        match Deadline::after(timeout).within(AssertUnwindSafe(work).catch_unwind()).await {
            Ok(Ok(outcome)) => outcome,
            Ok(Err(panic)) => {
                let message = format!("function `{name}` panicked: {}", panic_text(panic.as_ref()));
                unknown("function_panicked", message, false)
            }
            Err(Elapsed) => unknown("timeout", format!("function `{name}` did not end within {timeout:?}"), true),
        }
    }
}

fn unknown(code: &str, message: String, timeout: bool) -> ToolOutcome {
    ToolOutcome::Unknown { error: Failure::new(code, message), retry_after: None, timeout }
}

fn panic_text(panic: &(dyn std::any::Any + Send)) -> &str {
    let text = panic.downcast_ref::<&str>().copied();
    text.or_else(|| panic.downcast_ref::<String>().map(String::as_str)).unwrap_or("no message")
}

impl Tools for Toolbox {
    fn call(&self, call: ToolCall) -> BoxFuture<'_, ToolOutcome> {
        let tool = Arc::clone(&call.tool);
        Box::pin(async move {
            match &tool.kind {
                ToolKind::Function(name) => self.call_function(name, call).await,
                ToolKind::Http(http) => self.http.call(&call, http).await,
                ToolKind::Human(_) => {
                    let message =
                        format!("`{}` asks a person: it waits for a signal and is never called", call.tool_name);
                    ToolOutcome::NotSent { error: Failure::new("not_callable", message), permanent: true }
                }
            }
        })
    }
}

impl fmt::Debug for Toolbox {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Toolbox").field("functions", &self.functions.keys()).finish_non_exhaustive()
    }
}

impl From<ToolCall> for FunctionCall {
    fn from(call: ToolCall) -> Self {
        Self {
            fence: call.fence,
            input: call.input,
            job: call.job,
            key: call.key,
            node: call.node,
            tool: call.tool_name,
            try_number: call.try_number,
        }
    }
}

/// Collects what a [`Toolbox`] is made of.
pub struct ToolboxBuilder {
    env: EnvSource,
    functions: Vec<(String, Function)>,
    guard: Guard,
    lookup: Arc<dyn Lookup>,
    own: Arc<dyn OwnAddresses>,
}

impl ToolboxBuilder {
    /// Lets HTTP tools reach these networks beside the public ones (`tools.http.allow`).
    #[must_use]
    pub fn allow_networks(mut self, networks: impl IntoIterator<Item = IpNet>) -> Self {
        self.guard = self.guard.and(networks);
        self
    }

    /// Lets HTTP tools reach this machine, as `dev` does.
    #[must_use]
    pub fn allow_loopback(mut self) -> Self {
        self.guard = self.guard.with_loopback();
        self
    }

    /// Where `env.NAME` of urls and headers comes from (`tools.env`).
    #[must_use]
    pub fn env(mut self, env: EnvSource) -> Self {
        self.env = env;
        self
    }

    /// Resolves names in another way than the operating system's; answers are judged all the same.
    #[must_use]
    pub fn lookup(mut self, lookup: Arc<dyn Lookup>) -> Self {
        self.lookup = lookup;
        self
    }

    /// Where the processes of this store listen: no tool reaches these addresses, whatever is allowed.
    #[must_use]
    pub fn own_addresses(mut self, own: Arc<dyn OwnAddresses>) -> Self {
        self.own = own;
        self
    }

    /// Registers a function. It must not block its thread: it runs where other jobs do.
    #[must_use]
    pub fn function<F, R>(mut self, name: impl Into<String>, function: F) -> Self
    where
        F: Fn(FunctionCall) -> R + Send + Sync + 'static,
        R: Future<Output = ToolOutcome> + Send + 'static,
    {
        self.functions.push((name.into(), Arc::new(move |call| function(call).boxed())));
        self
    }

    /// The tools.
    ///
    /// # Errors
    /// Two functions have one name, or the HTTP client cannot be made.
    pub fn build(self) -> Result<Toolbox, BuildError> {
        let mut functions: BTreeMap<String, Function> = BTreeMap::new();
        for (name, function) in builtin::NAMES {
            let function = *function;
            functions.insert((*name).to_owned(), Arc::new(move |call| std::future::ready(function(&call)).boxed()));
        }
        for (name, function) in self.functions {
            if functions.insert(name.clone(), function).is_some() {
                return Err(BuildError::NameTaken(name));
            }
        }
        Ok(Toolbox { functions, http: HttpTools::new(self.guard, self.lookup, self.own, self.env)? })
    }
}

impl fmt::Debug for ToolboxBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ToolboxBuilder").field("env", &self.env).field("guard", &self.guard).finish_non_exhaustive()
    }
}
