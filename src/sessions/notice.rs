//! Sends notices, in the form that the client can show.

use uuid::Uuid;

use super::link::ClientLink;
use super::session::Session;
use threadway_translate::acp::notice::Notice;

impl ClientLink {
    /// Sends a notice. A client that cannot show notices gets a message of its own.
    pub(super) fn notice(&self, session: &Session, notice: &Notice) {
        if self.client().notice_forms.notices {
            return self.update(&session.id, &notice.update());
        }
        let message_id = format!("notice:{}", Uuid::new_v4());
        self.update(&session.id, &notice.line(&message_id));
    }
}
