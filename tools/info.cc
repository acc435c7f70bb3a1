// shardcomm info: versions, transports and why not, what the machine is made of, and every knob with its value.
#include <fmt/format.h>

#include <memory>
#include <nlohmann/json.hpp>
#include <sstream>

#include "shardcomm/c.h"
#include "shardcomm/communicator.h"
#include "tools/bytes.h"
#include "tools/command.h"
#include "tools/machine.h"

namespace shardcomm::tools {
namespace {

using Json = nlohmann::ordered_json;

std::string abi_text() {
  const uint32_t version = shardcomm_abi_version();
  return fmt::format("{}.{}", version >> 16, version & 0xFFFF);
}

std::string compiler_text() {
#ifdef __clang__
  return fmt::format("clang {}.{}.{}", __clang_major__, __clang_minor__, __clang_patchlevel__);
#else
  return fmt::format("g++ {}.{}.{}", __GNUC__, __GNUC_MINOR__, __GNUC_PATCHLEVEL__);
#endif
}

struct Facts {
  std::vector<TransportReport> transports;
  Machine machine;
  Options options;
};

Result<Facts> gather_facts() {
  Facts facts;
  SHARDCOMM_TRY_ASSIGN(facts.options, Options::from_env());
  SHARDCOMM_TRY_ASSIGN(facts.machine, look_at_machine());
  facts.transports = probe_transports(Device{});
  return facts;
}

void print_text(const Facts& facts) {
  const Machine& machine = facts.machine;
  fmt::print("shardcomm {} (ABI {}, {})\n\ntransports\n", shardcomm_version_string(), abi_text(), compiler_text());
  for (const TransportReport& transport : facts.transports)
    fmt::print("  {:<6} {}\n", transport.name, transport.usable.ok() ? "usable" : transport.usable.message());
  fmt::print("\nmachine\n");
  if (!machine.processor.empty()) fmt::print("  {}\n", machine.processor);
  fmt::print("  {} cores, {} hardware threads, {} usable here\n", machine.cores, machine.units, machine.usable_units);
  fmt::print("  {:.1f} GiB of memory in {} NUMA node{}\n", static_cast<double>(machine.memory_bytes) / (1 << 30),
             machine.numa_nodes, machine.numa_nodes == 1 ? "" : "s");
  for (const Cache& cache : machine.caches)
    fmt::print("  L{} cache {} x {}\n", cache.level, cache.count, bytes_text(cache.size_bytes));
  fmt::print("  host kernels: {}\n", host_kernels());
  fmt::print("\noptions\n");
  std::istringstream lines(facts.options.describe());
  for (std::string line; std::getline(lines, line);) fmt::print("  {}\n", line);
}

void print_json(const Facts& facts) {
  const Machine& machine = facts.machine;
  Json transports = Json::array();
  for (const TransportReport& transport : facts.transports) {
    const bool usable = transport.usable.ok();
    transports.push_back({{"name", transport.name},
                          {"usable", usable},
                          {"reason", usable ? Json() : Json(transport.usable.to_string())}});
  }
  Json caches = Json::array();
  for (const Cache& cache : machine.caches)
    caches.push_back({{"level", cache.level}, {"size_bytes", cache.size_bytes}, {"count", cache.count}});
  Json options = Json::array();
  std::istringstream lines(facts.options.describe());
  for (std::string line; std::getline(lines, line);) options.push_back(line);
  const Json all = {{"version", shardcomm_version_string()},
                    {"abi", abi_text()},
                    {"compiler", compiler_text()},
                    {"transports", transports},
                    {"machine",
                     {{"processor", machine.processor},
                      {"cores", machine.cores},
                      {"hardware_threads", machine.units},
                      {"usable_threads", machine.usable_units},
                      {"numa_nodes", machine.numa_nodes},
                      {"memory_bytes", machine.memory_bytes},
                      {"caches", caches},
                      {"host_kernels", host_kernels()}}},
                    {"options", options}};
  fmt::print("{}\n", all.dump(2));
}

}  // namespace

Subcommand add_info(CLI::App& app) {
  Flags flags = add_subcommand(app, "info", "What this machine and this build offer.");
  auto json = std::make_shared<bool>(false);
  flags.toggle("--json", *json, "As one JSON object");
  return {flags.app(), [json](const Invocation&) -> Result<int> {
            SHARDCOMM_TRY_ASSIGN(const Facts facts, gather_facts());
            *json ? print_json(facts) : print_text(facts);
            return 0;
          }};
}

}  // namespace shardcomm::tools
