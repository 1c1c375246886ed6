module github.com/permits-rs/permits/contrib/go/permitshttp

go 1.23

require github.com/permits-rs/permits/bindings/go v0.1.0

replace github.com/permits-rs/permits/bindings/go => ../../../bindings/go
