# The gateway as an image, built from source: one static binary, no shell, no root.
#
#   docker build -t threadway .
#   docker run --rm -p 127.0.0.1:8484:8484 threadway demo --insecure
#
# packaging/image.Dockerfile makes the released image of the released binary.

# The host of an Alpine image is musl, so the binary is static.
FROM rust:1.95.0-alpine3.23@sha256:606fd313a0f49743ee2a7bd49a0914bab7deedb12791f3a846a34a4711db7ed2 AS build
WORKDIR /src
COPY . .
# Caches belong to the builder, not to a layer, so the binary is copied out of them.
RUN --mount=type=cache,target=/usr/local/cargo/registry \
    --mount=type=cache,target=/src/target \
    cargo build --profile dist --locked --bin threadway \
    && cp target/dist/threadway /threadway

# The system's roots for TLS to the upstream, and no other program.
FROM gcr.io/distroless/static-debian13:nonroot@sha256:f7f8f729987ad0fdf6b05eeeae94b26e6a0f613bdf46feea7fc40f7bd72953e6
COPY --from=build /threadway /threadway
# A number, so that Kubernetes can check that the user is not root.
USER 65532:65532
# A container's loopback address cannot be reached from outside. On any other address the gateway needs an `auth.mode`.
ENV THREADWAY_LISTEN=0.0.0.0:8484
EXPOSE 8484
# There is no HEALTHCHECK: the image has no client that could send one. The orchestrator asks GET /readyz.
ENTRYPOINT ["/threadway"]
CMD ["serve"]
