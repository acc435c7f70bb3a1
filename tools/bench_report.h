// How the rows of a bench are shown and saved.
#pragma once
#include <string>

#include "tools/bench_rank.h"

namespace shardcomm::tools {

struct BenchReport {
  BenchSpec spec;
  int ranks = 1;
  bool threads = false;  // ranks are threads of one process
  std::vector<BenchRow> rows;
};

void print_head(const BenchReport& report);
void print_row(const BenchReport& report, const BenchRow& row);
Status write_json(const BenchReport& report, const std::string& path);

}  // namespace shardcomm::tools
