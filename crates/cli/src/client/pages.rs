//! Lists that are read page by page.

use aetheris_api::{AgentList, InDoubtList, JobList, StepPage, WaitList};
use serde::de::DeserializeOwned;

use super::{Answer, Client};
use crate::error::Error;

/// A page of a list, which says where the list goes on.
pub trait Page: DeserializeOwned {
    /// The cursor of the next page; none where this is the last one.
    fn next_cursor(&self) -> Option<&str>;
}

macro_rules! pages {
    ($($page:ty),*) => {$(
        impl Page for $page {
            fn next_cursor(&self) -> Option<&str> {
                self.next_cursor.as_deref()
            }
        }
    )*};
}

pages!(AgentList, InDoubtList, JobList, StepPage, WaitList);

/// A list on the server, read page by page.
#[derive(Debug)]
pub struct Pages<'c> {
    client: &'c Client,
    /// Where the list goes on; none where it has not begun, or is at its end.
    cursor: Option<String>,
    ended: bool,
    filters: Vec<(&'c str, &'c str)>,
    path: Vec<&'c str>,
}

impl Client {
    /// A list that is asked for with these filters.
    #[must_use]
    pub fn pages<'c>(&'c self, path: &[&'c str], filters: impl IntoIterator<Item = (&'c str, &'c str)>) -> Pages<'c> {
        let filters = filters.into_iter().collect();
        Pages { client: self, cursor: None, ended: false, filters, path: path.to_vec() }
    }
}

impl Pages<'_> {
    /// The next page; none where the list is at its end.
    ///
    /// # Errors
    /// What the server or the connection says; or the page's cursor is the one that it was asked with, and the list would
    /// never end.
    pub async fn next<T: Page>(&mut self) -> Result<Option<Answer<T>>, Error> {
        if self.ended {
            return Ok(None);
        }
        let mut query = self.filters.clone();
        query.extend(self.cursor.as_deref().map(|cursor| ("cursor", cursor)));
        let page = self.client.get::<T>(&self.path, &query).await?;
        let next = page.body.next_cursor().map(str::to_owned);
        if next.is_some() && next == self.cursor {
            let why = "its `next_cursor` is the one that it was asked with";
            return Err(self.client.unexpected("a page of a list", 200, why));
        }
        self.ended = next.is_none();
        self.cursor = next;
        Ok(Some(page))
    }

    /// Where the list goes on.
    #[must_use]
    pub fn cursor(&self) -> Option<&str> {
        self.cursor.as_deref()
    }
}
