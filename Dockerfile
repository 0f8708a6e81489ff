# The program on Debian 12, for the CPU:
#   docker build -t metaformer .
#   docker run --rm -v "$PWD:/work" metaformer train --config shakespeare_metric.yaml
FROM debian:12 AS build
COPY . /metaformer
WORKDIR /metaformer
RUN scripts/setup.sh --cpu
RUN scripts/run.sh --version && cmake --install build/release --prefix /opt/metaformer

FROM debian:12-slim
RUN apt-get update -qq \
 && apt-get install -y -qq --no-install-recommends ca-certificates libcsv3 libcurl4 libfmt9 libicu72 liblinear4 libmimalloc2.0 libpcre2-8-0 \
    librsvg2-bin libsentencepiece0 libspdlog1.10 libssl3 libstdc++6 libyaml-cpp0.7 libzstd1 zlib1g \
 && rm -rf /var/lib/apt/lists/*
COPY --from=build /opt/metaformer /opt/metaformer
ENV PATH=/opt/metaformer/bin:$PATH
WORKDIR /work
ENTRYPOINT ["metaformer"]
CMD ["--help"]
