//! Why a check failed.

/// Why a check failed, for a person.
pub type Failure = String;

pub(super) fn failed<E: std::fmt::Display>(what: &str) -> impl FnOnce(E) -> Failure {
    move |error| format!("cannot {what}: {error}")
}

/// Fails a check with a reason if something is not so.
macro_rules! ensure {
    ($is_so:expr, $($why:tt)+) => {
        if !$is_so {
            return Err(format!($($why)+));
        }
    };
}

pub(super) use ensure;
