// The command line of `shardcomm bench`.
#pragma once
#include <string>
#include <vector>

#include "tools/bench/layout.h"
#include "tools/flags.h"

namespace shardcomm::tools {

struct BenchRequest {
  std::string collective;  // empty: none, where only files are drawn or the machine is measured
  std::string dtype = "f32";
  std::string op = "sum";
  std::string memory = "window";
  std::string json;  // files to write; empty: not written
  std::string plot;
  std::string tune;
  std::vector<std::string> with;  // results to draw, too
  int ranks = 0;                  // 0: those of the environment
  bool threads = false;
  bool percentiles = false;
  BenchSpec spec;

  bool benches() const { return !collective.empty(); }
  bool tunes() const { return !tune.empty(); }
};

Flag add_bench_flags(Flags& flags, BenchRequest& request);  // returns --op
// What the parser cannot see: flags that do not go together, files that cannot be written. UsageError for the first.
Status resolve(BenchRequest& request, bool op_given);

}  // namespace shardcomm::tools
