//! Steps of the wall clock, told once each: the store's clock does not follow them.

use aetheris_core::time::Span;
use aetheris_store::clock::Look;

/// A step of the wall clock of more than this is reported.
const STEP: Span = Span::from_secs(60);

/// Which steps of the wall clock are reported already.
#[derive(Debug, Default)]
pub(crate) struct ClockSteps {
    back: bool,
    forward: bool,
}

impl ClockSteps {
    /// Tells what is news.
    pub(crate) fn tell(&mut self, look: Look) {
        let (ahead, behind) = self.news(look);
        if let Some(ahead) = ahead {
            tracing::warn!(%ahead, "the wall clock was set back; the store's clock goes on at nine tenths of its pace");
        }
        if let Some(behind) = behind {
            tracing::warn!(%behind, "the wall clock was set forward; it is believed when it has stood for ten seconds");
        }
    }

    /// How far the store's clock is ahead of the wall clock and behind it, each where that is a step and not told yet.
    fn news(&mut self, look: Look) -> (Option<Span>, Option<Span>) {
        let (ahead, behind) = (look.ahead().rounded(), look.behind().rounded());
        let (back, forward) = (ahead > STEP, behind > STEP);
        let news = ((back && !self.back).then_some(ahead), (forward && !self.forward).then_some(behind));
        (self.back, self.forward) = (back, forward);
        news
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use aetheris_core::time::Timestamp;
    use aetheris_store::clock::StoreClock;
    use aetheris_store::system::{Clock, ManualClock};

    use super::*;

    /// A step is told once, and again when there has been none in between.
    #[test]
    fn a_step_of_the_wall_clock_is_news_when_it_begins() {
        let clock = ManualClock::at(Timestamp::from_micros(1_780_000_000_000_000));
        let store = StoreClock::new(Arc::new(clock.clone()));
        let (mark, set, mut steps) = (store.look(None).mark, clock.wall(), ClockSteps::default());
        let mut news = |by: i64| {
            clock.set_wall(Timestamp::from_micros(set.micros() + by * 1_000_000));
            steps.news(store.look(mark))
        };
        let seconds = |seconds| Some(Span::from_secs(seconds));
        for (by, told) in [
            (0, (None, None)),
            (-60, (None, None)),
            (-61, (seconds(61), None)),
            (-70, (None, None)),
            (60, (None, None)),
            (61, (None, seconds(61))),
            (70, (None, None)),
            (-61, (seconds(61), None)),
            (0, (None, None)),
            (61, (None, seconds(61))),
        ] {
            assert_eq!(news(by), told, "{by}");
        }
    }
}
