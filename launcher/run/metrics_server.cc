#include "launcher/run/metrics_server.h"

#include "collectives/agree/agreement.h"
#include "runtime/base/log.h"
#include "runtime/train/folder/run_generation.h"

namespace lockstep::launcher {
namespace {

PageServer server_of(const OutputConfig& output, const metrics::PrometheusPage& page) {
  const int port = static_cast<int>(output.prometheus_port);
  try {
    return PageServer(output.prometheus_address, port, [&page] { return page.text(); });
  } catch (const collectives::SocketError& error) {
    throw ConfigError(
        "output.prometheus_port: value is {}, at output.prometheus_address '{}': {}; allowed: a "
        "free port and a numeric address of this host; 0 serves nothing",
        port,
        output.prometheus_address,
        error.what());
  }
}

}  // namespace

MetricsServer::MetricsServer(const RunConfig& config, int ranks)
    : page_({.name = config.name,
             .run_dir = config.output.run_dir,
             .ranks = ranks,
             .start = train::own_generation().number}),
      server_(server_of(config.output, page_)) {
  log_info("metrics for Prometheus: http://{}/metrics",
           collectives::endpoint_text(config.output.prometheus_address, server_.port()));
}

std::unique_ptr<MetricsServer> serve_metrics(Session& session, const RunConfig& config) {
  std::unique_ptr<MetricsServer> server;
  collectives::run_on_root(session.communicator(), [&] {
    if (config.output.prometheus_port > 0)
      server = std::make_unique<MetricsServer>(config, session.communicator().size());
  });
  return server;
}

}  // namespace lockstep::launcher
