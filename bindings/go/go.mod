module github.com/permits-rs/permits/bindings/go

go 1.23
