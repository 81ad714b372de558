//! The contract of the ports, against the fakes and against the real adapters over the embedded
//! stack.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod kcl_rows;
mod sources;
mod table_names;

use std::sync::Arc;

use harness::contract::fan_out::FanOutStream;
use harness::contract::lease_store::fresh;
use harness::contract::standalone_hosts::StandaloneControl;
use harness::embedded::Embedded;
use harness::fake_coordinator::FakeCoordinator;
use harness::fake_fan_out::FakeFanOut;
use harness::fake_lease_store::FakeLeaseStore;
use harness::fake_standalone_hosts::FakeStandaloneHosts;
use harness::fake_stream::FakeStream;
use harness::shared_stream::SharedControl;
use harness::standalone_scene::StandaloneScene;
use harness::{
    coordinator_contract, directives_contract, fan_out_contract, lease_store_contract,
    standalone_hosts_contract, stream_contract,
};
use shardmill_aws::{
    CoordinatorTable, KinesisFanOut, KinesisReader, LeaseTable, Wire, WireSetting,
};
use shardmill_core::lease::WorkerId;
use shardmill_core::ports::{Coordinator, LeaseStore};
use shardmill_core::stream::StreamName;
use shardmill_local::LocalOptions;

mod fake_lease_store {
    use super::*;
    lease_store_contract!(async { (FakeLeaseStore::new(), ()) });
    directives_contract!(async { (FakeLeaseStore::new(), ()) });
}

mod fake_coordinator {
    use super::*;
    coordinator_contract!(async { (FakeCoordinator::new(), ()) });
}

mod coordinator_table {
    use super::*;
    coordinator_contract!(async {
        let embedded = Embedded::start(LocalOptions::in_memory()).await;
        let table = CoordinatorTable::new(embedded.clients.dynamodb.clone(), "orders");
        table.ensure_table().await.expect("a table");
        (table, embedded)
    });
}

mod dynamodb {
    use super::*;
    lease_store_contract!(async {
        let embedded = Embedded::start(LocalOptions::in_memory()).await;
        let table = embedded.lease_table("leases");
        table.ensure_table().await.expect("a table");
        (table, embedded)
    });
    directives_contract!(async {
        let embedded = Embedded::start(LocalOptions::in_memory()).await;
        let table = embedded.lease_table("leases");
        table.ensure_table().await.expect("a table");
        (table, embedded)
    });
}

/// The tables of standalone hosts, beside another host that has the same shards.
mod dynamodb_of_a_standalone_host {
    use super::*;
    lease_store_contract!(beside_another_host());
    directives_contract!(beside_another_host());

    async fn beside_another_host() -> (LeaseTable, Embedded) {
        let embedded = Embedded::start(LocalOptions::in_memory()).await;
        let table = embedded.lease_table("leases@pod-1");
        table.ensure_table().await.expect("a table");
        let other = embedded.lease_table("leases@pod-2");
        for index in 0..3 {
            other.create(&fresh(index)).await.expect("a row");
        }
        (table, embedded)
    }
}

/// The leases of one stream, in a table that has those of others too.
mod dynamodb_of_one_stream {
    use super::*;
    lease_store_contract!(beside_another_stream());
    directives_contract!(beside_another_stream());

    async fn beside_another_stream() -> (LeaseTable, Embedded) {
        let embedded = Embedded::start(LocalOptions::in_memory()).await;
        let mut tables = Vec::new();
        for name in ["clicks", "orders"] {
            embedded.stream(name, 1).await;
            let stream = StreamName::new(name).expect("valid");
            let table = embedded.lease_table(&format!("leases:{name}"));
            let table = table.of_stream(embedded.clients.kinesis.clone(), &(&stream).into());
            table.ensure_table().await.expect("a table");
            tables.push(table);
        }
        let (orders, clicks) = (tables.remove(1), tables.remove(0));
        for index in 0..3 {
            clicks.create(&fresh(index)).await.expect("a row");
        }
        (orders, embedded)
    }
}

mod coordinator_table_of_one_stream {
    use super::*;
    coordinator_contract!(async {
        let embedded = Embedded::start(LocalOptions::in_memory()).await;
        let mut tables = Vec::new();
        for name in ["returns", "clicks"] {
            embedded.stream(name, 1).await;
            let stream = StreamName::new(name).expect("valid");
            let clients = &embedded.clients;
            let application = format!("orders:{name}");
            let table = CoordinatorTable::new(clients.dynamodb.clone(), &application);
            let table = table.of_stream(clients.kinesis.clone(), &(&stream).into());
            table.ensure_table().await.expect("a table");
            tables.push(table);
        }
        let (clicks, returns) = (tables.remove(1), tables.remove(0));
        returns.announce().await.expect("a row");
        (clicks, embedded)
    });
}

mod coordinator_table_of_a_standalone_host {
    use super::*;
    coordinator_contract!(async {
        let embedded = Embedded::start(LocalOptions::in_memory()).await;
        let hosts = StandaloneScene::of(embedded.clients.dynamodb.clone(), "orders").await;
        hosts
            .serve(&WorkerId::new("pod-2").expect("not empty"))
            .await;
        let table = CoordinatorTable::new(embedded.clients.dynamodb.clone(), "orders@pod-1");
        (table, embedded)
    });
}

mod standalone_tables {
    use super::*;
    standalone_hosts_contract!(async {
        let embedded = Embedded::start(LocalOptions::in_memory()).await;
        let scene = StandaloneScene::of(embedded.clients.dynamodb.clone(), "orders").await;
        (scene, embedded)
    });
}

mod fake_standalone_hosts {
    use super::*;
    standalone_hosts_contract!(async { (FakeStandaloneHosts::default(), ()) });
}

mod fake_stream {
    use super::*;
    stream_contract!(async { (FakeStream::new(2), ()) });
}

mod fake_fan_out {
    use super::*;
    fan_out_contract!(async {
        let stream = Arc::new(FakeStream::new(2));
        let fan_out = FakeFanOut::new(Arc::clone(&stream));
        (
            FanOutStream {
                stream,
                fan_out: Box::new(fan_out),
            },
            (),
        )
    });
}

/// A stream of the embedded Kinesis with subscriptions in one format.
async fn kinesis_fan_out(wire: WireSetting) -> (FanOutStream, Embedded) {
    let embedded = Embedded::start(LocalOptions::in_memory()).await;
    let stream = embedded.stream("orders", 2).await;
    let name = StreamName::new("orders").expect("valid");
    let fan_out =
        KinesisFanOut::new(embedded.clients.kinesis.clone(), name).speaking(Wire::new(wire));
    (
        FanOutStream {
            stream: Arc::new(stream),
            fan_out: Box::new(fan_out),
        },
        embedded,
    )
}

mod kinesis_fan_out_in_cbor {
    use super::*;
    fan_out_contract!(kinesis_fan_out(WireSetting::Cbor));
}

mod kinesis_fan_out_in_json {
    use super::*;
    fan_out_contract!(kinesis_fan_out(WireSetting::Json));
}

/// In CBOR alone: nothing may be left to another format.
mod kinesis {
    use super::*;
    stream_contract!(async {
        let embedded = Embedded::start(LocalOptions::in_memory()).await;
        let stream = embedded.stream("orders", 2).await;
        (stream.speaking(WireSetting::Cbor), embedded)
    });
}

mod kinesis_in_json {
    use super::*;
    stream_contract!(async {
        let embedded = Embedded::start(LocalOptions::in_memory()).await;
        let stream = embedded.stream("orders", 2).await;
        (stream.speaking(WireSetting::Json), embedded)
    });
}

/// As a stream of another account is read.
mod kinesis_by_arn {
    use super::*;
    stream_contract!(async {
        let embedded = Embedded::start(LocalOptions::in_memory()).await;
        let stream = embedded.stream("orders", 2).await;
        (
            stream.by_arn("arn:aws:kinesis:us-east-1:000000000000:stream/orders"),
            embedded,
        )
    });
}

mod shared_kinesis {
    use super::*;
    stream_contract!(async {
        let embedded = Embedded::start(LocalOptions::in_memory()).await;
        let stream = embedded.stream("orders", 2).await;
        let reader = Arc::new(KinesisReader::new(
            embedded.clients.kinesis.clone(),
            stream.name().clone(),
        ));
        (SharedControl::new(Arc::new(stream), reader), embedded)
    });
}
