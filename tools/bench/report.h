// How the rows of a bench are shown and saved.
#pragma once
#include <string>

#include "tools/bench/rank.h"

namespace shardcomm::tools {

struct BenchReport {
  BenchSetup setup;
  bool threads = false;      // ranks are threads of one process
  bool percentiles = false;  // as columns, too
  std::vector<BenchRow> rows;
};

void print_head(const BenchReport& report);
void print_row(const BenchReport& report, const BenchRow& row);
std::string to_json(const BenchReport& report);

}  // namespace shardcomm::tools
