//! Time that passes on the boot clock: a machine that was suspended has used up what it slept through.

use std::time::Duration;

use aetheris_store::system::Clock;

/// How often the boot clock is looked at: the async runtime's own clock stands still while the machine sleeps.
const LOOK: Duration = Duration::from_secs(1);

/// Returns when so much time has passed on the boot clock.
pub(crate) async fn pass(clock: &dyn Clock, span: Duration) {
    let until = clock.boot().saturating_add(span);
    loop {
        let left = until.saturating_sub(clock.boot());
        if left.is_zero() {
            return;
        }
        tokio::time::sleep(left.min(LOOK)).await;
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use aetheris_core::time::Span;
    use aetheris_store::system::ManualClock;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn what_the_machine_sleeps_through_is_over_when_it_wakes() {
        let clock = Arc::new(ManualClock::default());
        let waits = tokio::spawn({
            let clock = Arc::clone(&clock);
            async move { pass(clock.as_ref(), Duration::from_secs(100)).await }
        });
        tokio::time::sleep(Duration::from_secs(3)).await;
        assert!(!waits.is_finished());
        clock.advance(Span::from_secs(99));
        tokio::time::sleep(Duration::from_secs(3)).await;
        assert!(!waits.is_finished());
        clock.advance(Span::from_secs(1));
        waits.await.unwrap();
    }
}
