# The image of a release. `packaging/release image` puts the static binary of the musl archive into the build context.
# ../Dockerfile builds the same image from source.
FROM gcr.io/distroless/static-debian13:nonroot@sha256:f7f8f729987ad0fdf6b05eeeae94b26e6a0f613bdf46feea7fc40f7bd72953e6
ARG TARGETPLATFORM
COPY --chmod=755 ${TARGETPLATFORM}/threadway /threadway
COPY ${TARGETPLATFORM}/LICENSE ${TARGETPLATFORM}/THIRD-PARTY-NOTICES.txt /usr/share/doc/threadway/
USER 65532:65532
ENV THREADWAY_LISTEN=0.0.0.0:8484
EXPOSE 8484
ENTRYPOINT ["/threadway"]
CMD ["serve"]
