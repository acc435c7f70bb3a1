#include "bootstrap/launch.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <optional>
#include <vector>

#include "base/environment.h"
#include "base/text.h"

namespace shardcomm {
namespace {

struct Launcher {
  const char* rank;
  const char* world_size;
  const char* local_rank;
};

// The first that sets both rank and world size is believed; mpirun comes before srun because it may run inside a
// Slurm allocation, whose variables then describe the allocation.
constexpr Launcher kLaunchers[] = {
    {"RANK", "WORLD_SIZE", "LOCAL_RANK"},  // torchrun, shardcomm run
    {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK"},
    {"PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID"},  // MPICH and its kin
    {"SLURM_PROCID", "SLURM_NTASKS", "SLURM_LOCALID"},
};

Result<int32_t> number(const char* variable, const std::string& text) {
  const auto value = parse_count(text);
  if (value && *value <= INT32_MAX) return static_cast<int32_t>(*value);
  return Status(Code::kInvalidArgument, fmt::format("{} is '{}', but must be a number from 0", variable, text));
}

Result<LaunchedRank> read(const Launcher& from) {
  LaunchedRank place;
  SHARDCOMM_TRY_ASSIGN(place.rank, number(from.rank, *launcher_variable(from.rank)));
  SHARDCOMM_TRY_ASSIGN(place.world_size, number(from.world_size, *launcher_variable(from.world_size)));
  if (place.rank >= place.world_size) {
    return Status(Code::kInvalidArgument, fmt::format("{} is {} and {} is {}: ranks go from 0 to world size - 1",
                                                      from.rank, place.rank, from.world_size, place.world_size));
  }
  place.local_rank = place.rank;  // right on one machine, where launchers may leave it out
  if (const auto local = launcher_variable(from.local_rank)) {
    SHARDCOMM_TRY_ASSIGN(place.local_rank, number(from.local_rank, *local));
  }
  return place;
}

std::string all_names() {
  std::vector<std::string> names;
  for (const Launcher& l : kLaunchers) names.push_back(fmt::format("{} and {}", l.rank, l.world_size));
  return fmt::format("{}", fmt::join(names, ", or "));
}

}  // namespace

Result<LaunchedRank> LaunchedRank::from_env() {
  std::string half;
  for (const Launcher& launcher : kLaunchers) {
    const bool has_rank = launcher_variable(launcher.rank).has_value();
    const bool has_size = launcher_variable(launcher.world_size).has_value();
    if (has_rank && has_size) return read(launcher);
    if (half.empty() && has_rank != has_size) {
      half = fmt::format("{} is set, but {} is not", has_rank ? launcher.rank : launcher.world_size,
                         has_rank ? launcher.world_size : launcher.rank);
    }
  }
  if (!half.empty()) return Status(Code::kInvalidArgument, half);
  return Status(Code::kUnavailable,
                fmt::format("no launcher gave this process a rank: none of {} is set", all_names()));
}

namespace bootstrap {

std::optional<uint16_t> parse_port(std::string_view text) {
  const auto port = parse_count(text);
  if (!port || *port == 0 || *port > UINT16_MAX) return std::nullopt;
  return static_cast<uint16_t>(*port);
}

Result<Endpoint> launched_endpoint() {
  const Result<LaunchedRank> place = LaunchedRank::from_env();
  const auto host = launcher_variable("MASTER_ADDR");
  const auto port = launcher_variable("MASTER_PORT");
  std::vector<std::string> missing;
  if (!place.ok() && place.status().code() == Code::kUnavailable)
    missing.push_back("a rank and a world size (" + all_names() + ")");
  if (!host) missing.push_back("MASTER_ADDR (the host of rank 0)");
  if (!port) missing.push_back("MASTER_PORT (a free port there)");
  if (!missing.empty()) {
    return Status(Code::kInvalidArgument, fmt::format("env:// lacks in the environment: {}", fmt::join(missing, "; ")));
  }
  SHARDCOMM_TRY(place.status());
  const auto number = parse_port(*port);
  if (!number) {
    return Status(Code::kInvalidArgument,
                  fmt::format("MASTER_PORT is '{}', but must be a port from 1 to 65535", *port));
  }
  return Endpoint{*host, *number};
}

}  // namespace bootstrap
}  // namespace shardcomm
