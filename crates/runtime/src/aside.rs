//! Work that takes long and awaits nothing: the other tasks of its thread go on meanwhile.

use aetheris_expr::{Scope, Texts};

/// Lets the other tasks of this thread go on elsewhere meanwhile, where there are other threads.
pub fn aside<T>(work: impl FnOnce() -> T) -> T {
    let flavor = tokio::runtime::Handle::try_current().map(|runtime| runtime.runtime_flavor());
    if matches!(flavor, Ok(tokio::runtime::RuntimeFlavor::MultiThread)) {
        tokio::task::block_in_place(work)
    } else {
        work()
    }
}

/// Renders templates. Most take less time than going aside does: what takes more than a moment is begun once more, aside.
pub fn rendered<'s, T>(names: impl Into<Scope<'s>>, render: impl Fn(&mut Texts<'_>) -> T) -> T {
    let names = names.into();
    let mut texts = Texts::for_a_moment(names);
    let done = render(&mut texts);
    if texts.is_spent() { aside(|| render(&mut Texts::new(names))) } else { done }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;
    use std::sync::mpsc::{Receiver, channel};
    use std::time::Duration;

    use aetheris_expr::Context;

    use super::*;

    const BUSY: &str = "{% for i in range(12000) %}{% endfor %}done";

    fn both(met: &Mutex<Receiver<()>>) -> (String, bool) {
        rendered(&Context::default(), |texts| match texts.render(BUSY) {
            Ok(text) => (text, met.lock().unwrap().recv_timeout(Duration::from_secs(60)).is_ok()),
            Err(error) => (error.to_string(), false),
        })
    }

    /// One thread serves everybody here: whoever sends can only do so beside what renders.
    #[tokio::test(flavor = "multi_thread", worker_threads = 1)]
    async fn others_go_on_while_a_template_takes_long() {
        let (send, met) = channel();
        let met = Mutex::new(met);
        let renders = tokio::spawn(async move { both(&met) });
        let sends = tokio::spawn(async move { send.send(()).unwrap() });
        assert_eq!(renders.await.unwrap(), ("done".to_owned(), true));
        sends.await.unwrap();
    }

    #[tokio::test]
    async fn a_thread_by_itself_renders_too() {
        let (send, met) = channel();
        send.send(()).unwrap();
        assert_eq!(both(&Mutex::new(met)), ("done".to_owned(), true));
    }
}
