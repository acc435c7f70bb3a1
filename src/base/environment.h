// What a launcher says to its processes. Knobs of the library are in shardcomm/options.h, not here.
#pragma once
#include <optional>
#include <string>

namespace shardcomm {

// A launcher's variable: RANK, WORLD_SIZE, MASTER_ADDR, OMPI_COMM_WORLD_RANK, SLURM_PROCID, …
// Nothing where it is unset or empty. Any thread, as long as none changes the environment.
std::optional<std::string> launcher_variable(const std::string& name);

}  // namespace shardcomm
