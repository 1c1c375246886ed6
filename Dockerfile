# The command `permits` alone: a static program, as a user without rights.
#
#   docker build --tag permits .
#   docker run --rm --env PERMITS_URL=redis://redis.example/ permits status exports
#
# To run a program under a permit, copy the command into the image of that program:
#
#   COPY --from=permits /usr/bin/permits /usr/bin/permits
#   ENV PERMITS_REQUIRE_SERVER=1
#   ENTRYPOINT ["permits", "run", "exports", "--limit", "4", "--"]

FROM rust:1-alpine@sha256:a10e64dd139b7387337c7fbe8aca31b959b57b2fd4c8ae20a02cf1d6ea424dce AS build
RUN apk add --no-cache ca-certificates gcc musl-dev
WORKDIR /source
COPY . .
# On Alpine the target is musl, and linked statically.
RUN cargo build --release --locked --package permits-cli

FROM scratch
# rediss:// trusts the authorities of the system.
COPY --from=build /etc/ssl/certs/ca-certificates.crt /etc/ssl/certs/ca-certificates.crt
COPY --from=build /source/target/release/permits /usr/bin/permits
COPY --from=build /source/LICENSE-APACHE /source/LICENSE-MIT /usr/share/doc/permits/
ENV PATH=/usr/bin
# A directory in a container is no line that others share: without a URL the command fails.
ENV PERMITS_REQUIRE_SERVER=1
USER 65532:65532
ENTRYPOINT ["/usr/bin/permits"]
CMD ["--help"]
