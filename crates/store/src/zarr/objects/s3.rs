//! A prefix of a bucket in a store that speaks S3.
//!
//! Requests are signed by `rusty-s3`, which does no I/O, and sent by `ureq`, which needs no run-time of its own.

use super::error::ObjectError;
use rusty_s3::actions::{ListObjectsV2, S3Action};
use rusty_s3::{Bucket, Credentials, UrlStyle};
use std::env;
use std::time::Duration;

/// How long a signature holds, and a request may take.
const PATIENCE: Duration = Duration::from_secs(300);
/// Times that a request is made before it is given up.
const ATTEMPTS: u32 = 4;

/// Objects below a prefix.
#[derive(Debug)]
pub struct S3 {
    bucket: Bucket,
    credentials: Option<Credentials>,
    prefix: String,
    agent: ureq::Agent,
}

impl S3 {
    /// Opens `s3://bucket/prefix`.
    pub fn open(address: &str) -> Result<Self, ObjectError> {
        let wrong = || ObjectError::Address(format!("expected s3://bucket/prefix, found {address}"));
        let rest = address.strip_prefix("s3://").ok_or_else(wrong)?;
        let (name, prefix) = rest.trim_end_matches('/').split_once('/').unwrap_or((rest.trim_end_matches('/'), ""));
        if name.is_empty() {
            return Err(wrong());
        }
        let setting = |names: &[&str]| names.iter().find_map(|name| env::var(name).ok().filter(|v| !v.is_empty()));
        let region = setting(&["AWS_REGION", "AWS_DEFAULT_REGION"]).unwrap_or_else(|| "us-east-1".into());
        let own = setting(&["AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL"]);
        // Stores of one's own seldom have a name for every bucket.
        let style = if own.is_some() { UrlStyle::Path } else { UrlStyle::VirtualHost };
        let endpoint = own.unwrap_or_else(|| format!("https://s3.{region}.amazonaws.com"));
        let parsed = endpoint.parse().map_err(|error| {
            ObjectError::Address(format!("AWS_ENDPOINT_URL: expected an address, found {endpoint}: {error}"))
        })?;
        let bucket = Bucket::new(parsed, style, name.to_owned(), region)
            .map_err(|error| ObjectError::Address(format!("{address} at {endpoint}: {error}")))?;
        let credentials = match (setting(&["AWS_ACCESS_KEY_ID"]), setting(&["AWS_SECRET_ACCESS_KEY"])) {
            (Some(key), Some(secret)) => Some(match setting(&["AWS_SESSION_TOKEN"]) {
                Some(token) => Credentials::new_with_token(key, secret, token),
                None => Credentials::new(key, secret),
            }),
            _ => None,
        };
        let config = ureq::Agent::config_builder().timeout_global(Some(PATIENCE)).http_status_as_error(false);
        let prefix = if prefix.is_empty() { String::new() } else { format!("{prefix}/") };
        Ok(Self { bucket, credentials, prefix, agent: config.build().into() })
    }

    pub(super) fn put(&self, key: &str, bytes: &[u8]) -> Result<(), ObjectError> {
        let object = self.key(key);
        self.ask("write", &object, || {
            let url = self.bucket.put_object(self.credentials.as_ref(), &object).sign(PATIENCE);
            self.agent.put(url.as_str()).send(bytes)
        })?;
        Ok(())
    }

    pub(super) fn get(&self, key: &str, most: u64) -> Result<Option<Vec<u8>>, ObjectError> {
        let object = self.key(key);
        let mut answer = self.ask("read", &object, || {
            let url = self.bucket.get_object(self.credentials.as_ref(), &object).sign(PATIENCE);
            self.agent.get(url.as_str()).call()
        })?;
        if answer.status() == 404 {
            return Ok(None);
        }
        // A body that is as long as the limit counts as too long.
        let bytes = answer.body_mut().with_config().limit(most.saturating_add(1)).read_to_vec();
        bytes.map(Some).map_err(|error| failed("read", &object, error))
    }

    /// Removes every object below the prefix whose key goes on with `part`, and no other, whatever the store lists.
    pub(super) fn clear(&self, part: &str) -> Result<(), ObjectError> {
        let prefix = self.key(part);
        let wrong = |why: &str| ObjectError::Store { what: "list", object: prefix.clone(), why: why.into() };
        let mut last = None;
        // The first page of what is left, until nothing is.
        loop {
            let mut answer = self.ask("list", &prefix, || {
                let mut list = self.bucket.list_objects_v2(self.credentials.as_ref());
                list.with_prefix(prefix.as_str());
                self.agent.get(list.sign(PATIENCE).as_str()).call()
            })?;
            let text = answer.body_mut().read_to_string().map_err(|error| failed("list", &prefix, error))?;
            let page = ListObjectsV2::parse_response(&text).map_err(|error| failed("list", &prefix, error))?;
            let keys: Vec<String> = page.contents.into_iter().map(|object| object.key).collect();
            if keys.is_empty() {
                return Ok(());
            }
            if !keys.iter().all(|key| key.starts_with(&prefix)) {
                return Err(wrong("it lists objects that are elsewhere"));
            }
            if last == keys.first().cloned() {
                return Err(wrong("it lists an object that was removed"));
            }
            last = keys.first().cloned();
            keys.iter().try_for_each(|object| self.delete(object))?;
        }
    }

    pub(super) fn remove(&self, key: &str) -> Result<(), ObjectError> {
        self.delete(&self.key(key))
    }

    fn delete(&self, object: &str) -> Result<(), ObjectError> {
        self.ask("remove", object, || {
            let url = self.bucket.delete_object(self.credentials.as_ref(), object).sign(PATIENCE);
            self.agent.delete(url.as_str()).call()
        })?;
        Ok(())
    }

    fn key(&self, key: &str) -> String {
        format!("{}{key}", self.prefix)
    }

    /// Asks, and asks again if the store is busy or the line was cut. "Not found" is an answer.
    fn ask(
        &self,
        what: &'static str,
        object: &str,
        send: impl Fn() -> Result<ureq::http::Response<ureq::Body>, ureq::Error>,
    ) -> Result<ureq::http::Response<ureq::Body>, ObjectError> {
        let mut pause = Duration::from_millis(200);
        for attempt in 1.. {
            let why = match send() {
                Ok(answer) if answer.status().is_success() => return Ok(answer),
                Ok(answer) if answer.status() == 404 && what == "read" => return Ok(answer),
                Ok(mut answer) => {
                    let said = answer.body_mut().read_to_string().unwrap_or_default();
                    let why = format!("{}{}", answer.status(), message(&said));
                    if !answer.status().is_server_error() {
                        return Err(failed(what, &self.named(object), why));
                    }
                    why
                }
                Err(error) => error.to_string(),
            };
            if attempt == ATTEMPTS {
                return Err(failed(what, &self.named(object), why));
            }
            std::thread::sleep(pause);
            pause *= 2;
        }
        unreachable!("the loop ends by returning")
    }

    fn named(&self, object: &str) -> String {
        format!("s3://{}/{object}", self.bucket.name())
    }
}

/// What a store's XML says went wrong.
fn message(xml: &str) -> String {
    let of = |tag: &str| Some(xml.split_once(&format!("<{tag}>"))?.1.split_once("</")?.0.to_owned());
    of("Message").or_else(|| of("Code")).map_or(String::new(), |words| format!(": {words}"))
}

fn failed(what: &'static str, object: &str, why: impl ToString) -> ObjectError {
    ObjectError::Store { what, object: object.to_owned(), why: why.to_string() }
}
