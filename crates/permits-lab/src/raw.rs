//! The floor: the same Redis client with scripts that do nothing, or next to nothing.

use std::time::Instant;

use redis::aio::MultiplexedConnection;

use crate::Failure;

/// A script that does nothing, and the least that does something.
pub(crate) const NO_OP: &str = "return 0";
pub(crate) const INCREMENT: &str = "return redis.call('INCR', KEYS[1])";

/// A client set up as in permits: small writes go out at once.
pub(crate) fn client(url: &str) -> Result<redis::Client, Failure> {
    let info = redis::IntoConnectionInfo::into_connection_info(url)?;
    let settings = redis::io::tcp::TcpSettings::default().set_nodelay(true);
    Ok(redis::Client::open(info.set_tcp_settings(settings))?)
}

/// A script on a connection.
#[derive(Clone)]
pub(crate) struct Raw {
    connection: MultiplexedConnection,
    hash: String,
}

impl Raw {
    pub(crate) async fn connect(url: &str, script: &str) -> Result<Self, Failure> {
        let mut connection = client(url)?.get_multiplexed_async_connection().await?;
        let hash = redis::cmd("SCRIPT").arg("LOAD").arg(script).query_async(&mut connection).await?;
        Ok(Self { connection, hash })
    }

    pub(crate) async fn call(&mut self) -> Result<(), Failure> {
        let mut command = redis::cmd("EVALSHA");
        command.arg(&self.hash).arg(1).arg("permits-lab:raw");
        Ok(command.exec_async(&mut self.connection).await?)
    }

    /// Calls a second, by `tasks` tasks.
    pub(crate) async fn rate(&self, tasks: usize, calls: usize) -> Result<f64, Failure> {
        let began = Instant::now();
        let mut running = tokio::task::JoinSet::new();
        for _ in 0..tasks {
            let mut raw = self.clone();
            running.spawn(async move {
                for _ in 0..calls / tasks {
                    raw.call().await?;
                }
                Ok::<_, Failure>(())
            });
        }
        while let Some(finished) = running.join_next().await {
            finished??;
        }
        Ok(calls as f64 / began.elapsed().as_secs_f64())
    }
}
