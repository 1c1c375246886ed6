//! Two hosts with a pool of connections each, and a database that survives three queries at once: a
//! connection that is checked out has a permit. The pools keep more connections open than that, and at most
//! three are in use.
//!
//! `cargo run --example pool`, or with a server: `cargo run --example pool -- redis://127.0.0.1/`.

use std::convert::Infallible;
use std::error::Error;
use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use deadpool::managed::{Manager, Metrics, Object, RecycleResult};
use permits::{Client, Semaphore};
use tokio::task::JoinSet;

type Failure = Box<dyn Error + Send + Sync>;

/// The database, as all hosts see it.
#[derive(Default)]
struct Database {
    queries: AtomicUsize,
    most: AtomicUsize,
}

/// A connection to it.
struct Connection {
    database: Arc<Database>,
}

impl Connection {
    async fn query(&self) {
        let now = self.database.queries.fetch_add(1, Ordering::Relaxed) + 1;
        self.database.most.fetch_max(now, Ordering::Relaxed);
        tokio::time::sleep(Duration::from_millis(20)).await;
        self.database.queries.fetch_sub(1, Ordering::Relaxed);
    }
}

struct Connections {
    database: Arc<Database>,
}

impl Manager for Connections {
    type Type = Connection;
    type Error = Infallible;

    async fn create(&self) -> Result<Connection, Infallible> {
        Ok(Connection { database: self.database.clone() })
    }

    async fn recycle(&self, _: &mut Connection, _: &Metrics) -> RecycleResult<Infallible> {
        Ok(())
    }
}

/// A pool whose connections are in use within the limit of all hosts.
#[derive(Clone)]
struct Pool {
    pool: deadpool::managed::Pool<Connections>,
    in_use: Semaphore,
}

/// A connection in use. It returns to its pool before the permit is released, in the order of the fields.
struct Guarded {
    connection: Object<Connections>,
    permit: permits::Permit,
}

impl Pool {
    /// The permit first: a caller that waits for it keeps no connection from the others.
    async fn get(&self) -> Result<Guarded, Failure> {
        let permit = self.in_use.acquire().await?;
        Ok(Guarded { connection: self.pool.get().await?, permit })
    }
}

impl Deref for Guarded {
    type Target = Connection;

    fn deref(&self) -> &Connection {
        &self.connection
    }
}

#[tokio::main]
async fn main() -> Result<(), Failure> {
    let url = std::env::args().nth(1).unwrap_or_else(|| "memory:".into());
    let database = Arc::new(Database::default());

    // Two clients stand for two hosts.
    let clients = [Client::connect(&url).await?, Client::connect(&url).await?];
    let mut jobs = JoinSet::new();
    for client in &clients {
        let pool = deadpool::managed::Pool::builder(Connections { database: database.clone() });
        let pool = Pool { pool: pool.max_size(4).build()?, in_use: client.semaphore("database", 3)? };
        for _ in 0..6 {
            let pool = pool.clone();
            jobs.spawn(async move {
                let connection = pool.get().await?;
                // A query whose permit is lost stops: `run` drops its future.
                connection.permit.run(connection.query()).await?;
                Ok::<_, Failure>(())
            });
        }
    }
    while let Some(job) = jobs.join_next().await {
        job??;
    }

    let most = database.most.load(Ordering::Relaxed);
    println!("at most {most} queries at once");
    assert!(most <= 3);
    for client in clients {
        client.close().await?;
    }
    Ok(())
}
