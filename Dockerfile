# syntax=docker/dockerfile:1
# The gateway as an image: one static binary, no shell, no root.
#
#   docker build -t threadway .
#   docker run --rm -p 127.0.0.1:8484:8484 threadway demo --insecure

# The host of an Alpine image is musl, so that what it builds is static.
FROM rust:1.95.0-alpine3.23 AS build
WORKDIR /src
COPY . .
# The caches belong to the builder, not to a layer: what is wanted of them is copied out.
RUN --mount=type=cache,target=/usr/local/cargo/registry \
    --mount=type=cache,target=/src/target \
    cargo build --release --locked --bin threadway \
    && cp target/release/threadway /threadway

# System roots for TLS to the upstream, and nothing that runs.
FROM gcr.io/distroless/static-debian13:nonroot
COPY --from=build /threadway /threadway
# A number, so that Kubernetes can see that it is not root's.
USER 65532:65532
# Loopback is of no use in a container. Beyond it the gateway wants to know who may call.
ENV THREADWAY_LISTEN=0.0.0.0:8484
EXPOSE 8484
# There is no HEALTHCHECK: without a shell it would need a client of its own, and who runs
# containers asks GET /readyz by itself.
ENTRYPOINT ["/threadway"]
CMD ["serve"]
