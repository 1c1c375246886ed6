//! The page: the files of `page/`, which are part of this program.
//!
//! Plain HTML, CSS and JavaScript modules, without a build step and without anything from the network. The
//! data comes from the API, with the token, so the files themselves need none.

use std::sync::Arc;

use axum::Router;
use axum::http::header::CONTENT_TYPE;
use axum::response::IntoResponse as _;
use axum::routing::get;

use super::app::App;

const HTML: &str = "text/html; charset=utf-8";
const CSS: &str = "text/css; charset=utf-8";
const SCRIPT: &str = "text/javascript; charset=utf-8";

/// Path, media type and text of each file.
const FILES: [(&str, &str, &str); 12] = [
    ("/", HTML, include_str!("page/index.html")),
    ("/page/style.css", CSS, include_str!("page/style.css")),
    ("/page/detail.css", CSS, include_str!("page/detail.css")),
    ("/page/main.js", SCRIPT, include_str!("page/main.js")),
    ("/page/api.js", SCRIPT, include_str!("page/api.js")),
    ("/page/rank.js", SCRIPT, include_str!("page/rank.js")),
    ("/page/rate.js", SCRIPT, include_str!("page/rate.js")),
    ("/page/list.js", SCRIPT, include_str!("page/list.js")),
    ("/page/acts.js", SCRIPT, include_str!("page/acts.js")),
    ("/page/detail.js", SCRIPT, include_str!("page/detail.js")),
    ("/page/table.js", SCRIPT, include_str!("page/table.js")),
    ("/page/graph.js", SCRIPT, include_str!("page/graph.js")),
];

/// Adds the files to `router`.
pub(super) fn routes(router: Router<Arc<App>>) -> Router<Arc<App>> {
    FILES.into_iter().fold(router, |router, (path, media, text)| {
        router.route(path, get(async move || ([(CONTENT_TYPE, media)], text).into_response()))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_is_below_100_kib() {
        let bytes: usize = FILES.iter().map(|(_, _, text)| text.len()).sum();
        assert!(bytes < 100 * 1024, "{bytes}");
    }
}
