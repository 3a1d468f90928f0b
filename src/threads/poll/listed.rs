//! Pages of threads that a poller reads: the newest threads of an agent, for clients that show them.

use std::sync::Arc;

use tokio::sync::watch;

use super::super::Shared;
use super::super::list::{Columns, ListQuery, read_page};
use super::begin;
use crate::upstream::{Client, Error, ThreadRecord, UpstreamCredentials};
use threadway_translate::json::Json;

/// Which threads a page has.
#[derive(Clone, Debug)]
pub(in crate::threads) struct PageQuery {
    pub(in crate::threads) metadata: Json,
    pub(in crate::threads) list: ListQuery,
}

/// A page, and where its reader gets it.
#[derive(Clone, Debug)]
pub(super) struct ListedPage {
    pub(super) query: Arc<PageQuery>,
    reports: watch::Sender<PageReport>,
}

/// What polls have found of a page.
#[derive(Clone, Debug, Default)]
pub(in crate::threads) enum PageReport {
    #[default]
    NotPolled,
    Page(Arc<[ThreadRecord]>),
    /// The server refuses the list.
    Unserved,
}

/// A reader's subscription to the polls of a page.
#[derive(Debug)]
pub(in crate::threads) struct ListSubscription {
    shared: Arc<Shared>,
    place: (UpstreamCredentials, u64),
}

// === impl PageQuery ===

impl PageQuery {
    pub(in crate::threads) async fn read(
        &self,
        upstream: &Client,
    ) -> Result<Vec<ThreadRecord>, Error> {
        let page = read_page(upstream, &self.metadata, &self.list, Columns::Active).await?;
        Ok(page.threads)
    }
}

impl PartialEq for PageQuery {
    fn eq(&self, other: &Self) -> bool {
        self.metadata.get() == other.metadata.get() && self.list == other.list
    }
}

// === impl ListedPage ===

impl ListedPage {
    pub(super) fn report(&self, new: PageReport) {
        self.reports.send_if_modified(|report| {
            let is_same = match (&*report, &new) {
                (PageReport::Page(old), PageReport::Page(new)) => old == new,
                (PageReport::Unserved, PageReport::Unserved) => true,
                _ => false,
            };
            if !is_same {
                *report = new;
            }
            !is_same
        });
    }
}

// === impl ListSubscription ===

impl ListSubscription {
    /// Subscribes with the credentials of `upstream`.
    pub(in crate::threads) fn new(
        shared: &Arc<Shared>,
        upstream: &Client,
        query: Arc<PageQuery>,
    ) -> (Self, watch::Receiver<PageReport>) {
        let (reports, receiver) = watch::channel(PageReport::default());
        let added = shared.polls.subscribe_page(upstream, ListedPage { query, reports });
        let place = begin(shared, upstream, added);
        (Self { shared: Arc::clone(shared), place }, receiver)
    }
}

impl Drop for ListSubscription {
    fn drop(&mut self) {
        let (access, number) = &self.place;
        self.shared.polls.unsubscribe(access, *number);
    }
}
