//! A prefix of a bucket in an S3 object store.
//!
//! Requests are signed by `rusty-s3`, which does no I/O, and sent by `ureq`, which needs no async runtime.

use super::error::ObjectError;
use rusty_s3::actions::{ListObjectsV2, S3Action};
use rusty_s3::{Bucket, Credentials, UrlStyle};
use std::env;
use std::time::Duration;

/// Validity of a signature, and timeout of a request.
const TIMEOUT: Duration = Duration::from_secs(300);
/// Maximum number of attempts of a request.
const MAX_ATTEMPTS: u32 = 4;

/// Objects below a prefix of a bucket.
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
        let custom_endpoint = setting(&["AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL"]);
        // Self-hosted stores rarely have a host name for every bucket.
        let style = if custom_endpoint.is_some() { UrlStyle::Path } else { UrlStyle::VirtualHost };
        let endpoint = custom_endpoint.unwrap_or_else(|| format!("https://s3.{region}.amazonaws.com"));
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
        let config = ureq::Agent::config_builder().timeout_global(Some(TIMEOUT)).http_status_as_error(false);
        let prefix = if prefix.is_empty() { String::new() } else { format!("{prefix}/") };
        Ok(Self { bucket, credentials, prefix, agent: config.build().into() })
    }

    pub(super) fn put(&self, key: &str, bytes: &[u8]) -> Result<(), ObjectError> {
        let object = self.key(key);
        self.request("write", &object, || {
            let url = self.bucket.put_object(self.credentials.as_ref(), &object).sign(TIMEOUT);
            self.agent.put(url.as_str()).send(bytes)
        })?;
        Ok(())
    }

    pub(super) fn get(&self, key: &str, max_bytes: u64) -> Result<Option<Vec<u8>>, ObjectError> {
        let object = self.key(key);
        let mut response = self.request("read", &object, || {
            let url = self.bucket.get_object(self.credentials.as_ref(), &object).sign(TIMEOUT);
            self.agent.get(url.as_str()).call()
        })?;
        if response.status() == 404 {
            return Ok(None);
        }
        // A body exactly as long as the limit is rejected, so the limit is one more.
        let bytes = response.body_mut().with_config().limit(max_bytes.saturating_add(1)).read_to_vec();
        bytes.map(Some).map_err(|error| failed("read", &object, error))
    }

    /// Removes every object below the prefix whose key continues with `part`. Other keys that the store lists are an
    /// error and are not removed.
    pub(super) fn clear(&self, part: &str) -> Result<(), ObjectError> {
        let prefix = self.key(part);
        let wrong = |why: &str| ObjectError::Store { what: "list", object: prefix.clone(), why: why.into() };
        let mut last = None;
        // The first page of the remaining objects is listed until none are left.
        loop {
            let mut response = self.request("list", &prefix, || {
                let mut list = self.bucket.list_objects_v2(self.credentials.as_ref());
                list.with_prefix(prefix.as_str());
                self.agent.get(list.sign(TIMEOUT).as_str()).call()
            })?;
            let text = response.body_mut().read_to_string().map_err(|error| failed("list", &prefix, error))?;
            let page = ListObjectsV2::parse_response(&text).map_err(|error| failed("list", &prefix, error))?;
            let keys: Vec<String> = page.contents.into_iter().map(|object| object.key).collect();
            if keys.is_empty() {
                return Ok(());
            }
            if !keys.iter().all(|key| key.starts_with(&prefix)) {
                return Err(wrong("it lists objects without this prefix"));
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
        self.request("remove", object, || {
            let url = self.bucket.delete_object(self.credentials.as_ref(), object).sign(TIMEOUT);
            self.agent.delete(url.as_str()).call()
        })?;
        Ok(())
    }

    fn key(&self, key: &str) -> String {
        format!("{}{key}", self.prefix)
    }

    /// Sends a request, retrying with back-off on server errors and connection failures. "Not found" is a valid
    /// response to a read.
    fn request(
        &self,
        what: &'static str,
        object: &str,
        send: impl Fn() -> Result<ureq::http::Response<ureq::Body>, ureq::Error>,
    ) -> Result<ureq::http::Response<ureq::Body>, ObjectError> {
        let mut backoff = Duration::from_millis(200);
        for attempt in 1.. {
            let why = match send() {
                Ok(response) if response.status().is_success() => return Ok(response),
                Ok(response) if response.status() == 404 && what == "read" => return Ok(response),
                Ok(mut response) => {
                    let body = response.body_mut().read_to_string().unwrap_or_default();
                    let why = format!("{}{}", response.status(), message(&body));
                    if !response.status().is_server_error() {
                        return Err(failed(what, &self.named(object), why));
                    }
                    why
                }
                Err(error) => error.to_string(),
            };
            if attempt == MAX_ATTEMPTS {
                return Err(failed(what, &self.named(object), why));
            }
            std::thread::sleep(backoff);
            backoff *= 2;
        }
        unreachable!("the loop ends by returning")
    }

    fn named(&self, object: &str) -> String {
        format!("s3://{}/{object}", self.bucket.name())
    }
}

/// Extracts the error message from a store's XML response.
fn message(xml: &str) -> String {
    let of = |tag: &str| Some(xml.split_once(&format!("<{tag}>"))?.1.split_once("</")?.0.to_owned());
    of("Message").or_else(|| of("Code")).map_or(String::new(), |words| format!(": {words}"))
}

fn failed(what: &'static str, object: &str, why: impl ToString) -> ObjectError {
    ObjectError::Store { what, object: object.to_owned(), why: why.to_string() }
}
