//! What sessions ask of the people of this service.

use async_trait::async_trait;
use turnpike_core::time::Timestamp;

use super::{PeopleDesk, first_second};
use crate::error::AppError;
use crate::sessions::LocalPeople;

#[async_trait]
impl LocalPeople for PeopleDesk {
    async fn take_code(&self, subject: &str, code: &str, now: Timestamp) -> Result<(), AppError> {
        self.confirm(subject, code, now).await
    }

    /// Who is not known here was signed in by the operator.
    async fn is_current(&self, subject: &str, issued_at: i64) -> Result<bool, AppError> {
        let person = self.store.find_person(subject).await?;
        Ok(person.is_none_or(|person| issued_at >= first_second(&person)))
    }

    async fn end_sessions(&self, subject: &str) -> Result<(), AppError> {
        Ok(self.store.end_sessions(subject, self.environment.now()).await?)
    }
}
