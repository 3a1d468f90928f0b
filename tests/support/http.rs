//! The HTTP client of tests that need a whole one.

use threadway::upstream::Tls;

/// Connects anew for each request, since a test's clock may advance past the time after which an
/// idle connection is closed.
pub(crate) fn client() -> reqwest::Client {
    let tls = Tls::default().config().unwrap();
    let builder = reqwest::Client::builder().tls_backend_preconfigured(tls);
    builder.pool_max_idle_per_host(0).build().unwrap()
}
