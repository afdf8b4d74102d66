//! Payloads as they are stored.

use super::*;
use crate::limits::ERROR_MESSAGE_BYTES_MAX;
use crate::plan::WaitType;

#[test]
fn a_message_is_cut_to_its_bound_between_characters() {
    let fits = "x".repeat(ERROR_MESSAGE_BYTES_MAX);
    assert_eq!(Failure::new("code", fits.clone()), Failure { code: "code".to_owned(), message: fits });
    let cut = Failure::new("code", "x".repeat(ERROR_MESSAGE_BYTES_MAX + 1)).message;
    assert_eq!(cut, format!("{}…", "x".repeat(ERROR_MESSAGE_BYTES_MAX - 3)));
    let wide = Failure::new("code", "é".repeat(ERROR_MESSAGE_BYTES_MAX)).message;
    assert_eq!(wide, format!("{}…", "é".repeat((ERROR_MESSAGE_BYTES_MAX - 3) / 2)));
}

#[test]
fn names_are_as_they_are_stored() {
    for reason in RequeueReason::ALL {
        assert_eq!(serde_json::to_value(reason).unwrap(), reason.as_str());
    }
    for finish in FinishReason::ALL {
        assert_eq!(serde_json::to_value(finish).unwrap(), finish.as_str());
    }
    for reason in PauseReason::ALL {
        assert_eq!(serde_json::to_value(reason).unwrap(), reason.as_str());
    }
    for source in [Source::Executed, Source::CaughtUp, Source::Reconciled, Source::Resolved] {
        assert_eq!(serde_json::to_value(source).unwrap(), source.as_str());
        assert_eq!(source.is_executed(), source == Source::Executed);
    }
}

#[test]
fn good_ends_are_told_from_bad_ones_and_tokens_are_added() {
    use StepResult::{PermanentFailure, Pure, RetryableFailure, SideEffectCommitted, Success};
    let good: Vec<StepResult> = [Success, Pure, SideEffectCommitted, RetryableFailure, PermanentFailure]
        .into_iter()
        .filter(|result| result.is_success())
        .collect();
    assert_eq!(good, [Success, Pure, SideEffectCommitted]);
    assert_eq!(Usage { completion_tokens: 2, prompt_tokens: 3, ..Usage::default() }.total(), 5);
    assert_eq!(Usage { completion_tokens: u64::MAX, prompt_tokens: 3, ..Usage::default() }.total(), u64::MAX);
    let set = TimerSet { after_us: 9, timer: TimerId::Deadline };
    assert_eq!(set.due(), Due::After(Span::from_micros(9)));
}

/// Fields that say nothing are left out, and `null` is not nothing.
#[test]
fn what_is_absent_stays_absent() {
    let text = |event: &dyn erased::ToText| event.to_text();
    let requeued = JobRequeued { after_us: None, reason: RequeueReason::Retry };
    assert_eq!(text(&requeued), r#"{"reason":"retry"}"#);
    let requeued = JobRequeued { after_us: Some(0), ..requeued };
    assert_eq!(text(&requeued), r#"{"after_us":0,"reason":"retry"}"#);
    let wait = JobWaiting {
        correlation_key: None,
        doubt: false,
        node: "a".into(),
        park: true,
        reason: None,
        wait_type: WaitType::Timer,
    };
    assert_eq!(text(&wait), r#"{"node":"a","park":true,"wait_type":"timer"}"#);
    let finished = NodeFinished::new("a", StepResult::Pure);
    assert_eq!(text(&finished), r#"{"node":"a","result":"pure"}"#);
    let null = NodeFinished { output: Some(Json::null()), ..finished };
    assert_eq!(text(&null), r#"{"node":"a","output":null,"result":"pure"}"#);
    assert_eq!(serde_json::from_str::<NodeFinished>(&text(&null)).unwrap(), null);
}

mod erased {
    /// Canonical text of any payload.
    pub(super) trait ToText {
        fn to_text(&self) -> String;
    }

    impl<T: serde::Serialize> ToText for T {
        fn to_text(&self) -> String {
            String::from_utf8(crate::json::to_canonical(self)).unwrap()
        }
    }
}
