// From the words of a URI to the kind of store.
#include <fmt/format.h>

#include <optional>

#include "bootstrap/file/store.h"
#include "bootstrap/launch.h"
#include "bootstrap/local/store.h"
#include "bootstrap/tcp/store.h"

namespace shardcomm {
namespace {

using bootstrap::Endpoint;

using Opened = Result<std::unique_ptr<Store>>;

Status bad_uri(std::string_view uri, std::string_view why) {
  return Status(
      Code::kInvalidArgument,
      fmt::format("store '{}' {}: it must be tcp://host:port, file:///directory, local://name or env://", uri, why));
}

// "host:port" or "[v6]:port".
std::optional<Endpoint> parse_endpoint(std::string_view text) {
  const size_t colon = text.rfind(':');
  if (colon == std::string_view::npos) return std::nullopt;
  std::string_view host = text.substr(0, colon);
  if (host.size() > 2 && host.front() == '[' && host.back() == ']') {
    host = host.substr(1, host.size() - 2);
  } else if (host.find_first_of(":[]") != std::string_view::npos) {
    return std::nullopt;
  }
  const auto port = bootstrap::parse_port(text.substr(colon + 1));
  if (host.empty() || host.find_first_of("/@") != std::string_view::npos || !port) return std::nullopt;
  return Endpoint{std::string(host), *port};
}

Opened open_tcp(std::string_view uri, std::string_view rest) {
  const auto endpoint = parse_endpoint(rest);
  if (!endpoint) return bad_uri(uri, "does not name a host and a port");
  return std::unique_ptr<Store>(new bootstrap::TcpStore(*endpoint));
}

Opened open_file(std::string_view uri, std::string_view path) {
  while (path.size() > 1 && path.back() == '/') path.remove_suffix(1);
  if (path.size() < 2 || path.front() != '/' || path.find('\0') != std::string_view::npos)
    return bad_uri(uri, "does not name an absolute directory");
  return std::unique_ptr<Store>(new bootstrap::FileStore(std::string(path)));
}

Opened open_local(std::string_view uri, std::string_view name) {
  if (name.empty()) return bad_uri(uri, "has no name");
  return std::unique_ptr<Store>(new bootstrap::LocalStore(bootstrap::local_board(std::string(name))));
}

Opened open_env(std::string_view uri, std::string_view rest) {
  if (!rest.empty()) return bad_uri(uri, "says more than env://");
  SHARDCOMM_TRY_ASSIGN(Endpoint endpoint, bootstrap::launched_endpoint());
  return std::unique_ptr<Store>(new bootstrap::TcpStore(std::move(endpoint)));
}

struct Scheme {
  std::string_view prefix;
  Opened (*open)(std::string_view uri, std::string_view rest);
};

constexpr Scheme kSchemes[] = {
    {"tcp://", open_tcp}, {"file://", open_file}, {"local://", open_local}, {"env://", open_env}};

}  // namespace

Opened open_store(std::string_view uri) {
  for (const Scheme& scheme : kSchemes) {
    if (uri.starts_with(scheme.prefix)) return scheme.open(uri, uri.substr(scheme.prefix.size()));
  }
  return bad_uri(uri, "has no scheme that is known");
}

}  // namespace shardcomm
