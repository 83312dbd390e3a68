//! The page: files that `web/` is built into.

/// A file of the page.
pub(crate) struct Asset {
    pub(crate) path: &'static str,
    pub(crate) content_type: &'static str,
    pub(crate) bytes: &'static [u8],
}

macro_rules! asset {
    ($path:literal, $file:literal, $content_type:literal) => {
        Asset { path: $path, content_type: $content_type, bytes: include_bytes!(concat!("../web/dist/", $file)) }
    };
}

/// All files of the page.
pub(crate) const ASSETS: [Asset; 3] = [
    asset!("/", "index.html", "text/html; charset=utf-8"),
    asset!("/app.js", "app.js", "text/javascript; charset=utf-8"),
    asset!("/app.css", "app.css", "text/css; charset=utf-8"),
];
