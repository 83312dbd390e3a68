//! The guide's pages on the verbs, included so that their examples are compiled and run as tests.

#[doc = include_str!("../../../../docs/verbs/memory.md")]
pub mod memory {}
#[doc = include_str!("../../../../docs/verbs/queue-pairs.md")]
pub mod queue_pairs {}
#[doc = include_str!("../../../../docs/verbs/send.md")]
pub mod send {}
#[doc = include_str!("../../../../docs/verbs/recv.md")]
pub mod recv {}
#[doc = include_str!("../../../../docs/verbs/write.md")]
pub mod write {}
#[doc = include_str!("../../../../docs/verbs/read.md")]
pub mod read {}
#[doc = include_str!("../../../../docs/verbs/atomic.md")]
pub mod atomic {}
#[doc = include_str!("../../../../docs/verbs/post.md")]
pub mod post {}
#[doc = include_str!("../../../../docs/verbs/completions.md")]
pub mod completions {}
#[doc = include_str!("../../../../docs/verbs/notices.md")]
pub mod notices {}
