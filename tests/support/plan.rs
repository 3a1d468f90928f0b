//! Plans requests on threads whose past is given, or empty.

use threadway_translate::json::Json;
use threadway_translate::langgraph::{InputKeys, ThreadState};
use threadway_translate::run::{
    Evidence, LiveRun, MessagePast, Need, Plan, PlanStep, Planner, SentMessage,
};

/// What a planner may look up of a thread, beside its newest state.
pub(crate) trait Past {
    fn sent(&self, _ids: &[String], _made: &[String]) -> Vec<SentMessage> {
        Vec::new()
    }

    fn past(&self, ids: &[String]) -> Vec<MessagePast> {
        let before: Option<std::sync::Arc<str>> = Some("{}".into());
        let new = |id: &String| MessagePast {
            id: id.clone(),
            before: before.clone(),
            ..MessagePast::default()
        };
        ids.iter().map(new).collect()
    }

    fn values(&self, _wanted: Vec<(String, Json)>, _since: Option<&str>) -> Vec<(String, Json)> {
        Vec::new()
    }
}

/// A thread without a past.
pub(crate) struct NoPast;

impl Past for NoPast {}

/// The plan for a request on a thread without a past and without live runs.
pub(crate) fn plan<P: Planner>(
    planner: &P,
    thread: Option<&ThreadState<'_>>,
    keys: &InputKeys,
) -> Result<Plan, P::Error> {
    let result = plan_with(planner, thread, keys, &[], &NoPast)?;
    Ok(result.expect("without a live run none is stopped"))
}

/// The plan for a request, or the run that is to be stopped first.
pub(crate) fn plan_with<P: Planner>(
    planner: &P,
    state: Option<&ThreadState<'_>>,
    keys: &InputKeys,
    live: &[LiveRun],
    history: &impl Past,
) -> Result<Result<Plan, String>, P::Error> {
    let (mut sent, mut past, mut values) = (None, None, None);
    for _ in 0..6 {
        let evidence = Evidence {
            state,
            live: Some(live),
            sent: sent.as_deref(),
            past: past.as_deref(),
            values: values.as_deref(),
        };
        match planner.plan(&evidence, keys)? {
            PlanStep::Plan(plan) => return Ok(Ok(*plan)),
            PlanStep::Needs(Need::Runs) => panic!("the live runs are known"),
            PlanStep::Needs(Need::Sent { ids, made }) => sent = Some(history.sent(&ids, &made)),
            PlanStep::Needs(Need::Past(ids)) => past = Some(history.past(&ids)),
            PlanStep::Needs(Need::Values { wanted, since }) => {
                values = Some(history.values(wanted, since.as_deref()));
            }
            PlanStep::Needs(Need::Stop { run_id }) => return Ok(Err(run_id)),
        }
    }
    panic!("the planner asks for the same thing again");
}
