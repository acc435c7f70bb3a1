// The table of `shardcomm bench` under MPI: verifies and times one collective over a range of sizes, and writes the
// same JSON keys. Timing and statistics are the very code of `shardcomm bench` (tools/bench/sampling.h). Buffers begin
// on a page and ask for huge pages, as windows do.
//
//   mpicxx -std=c++20 -O2 -I../.. mpi_bench.cc ../../tools/bench/statistics.cc -o mpi_bench
//   mpirun -n 2 ./mpi_bench all_gather -b 8 -e 256M -f 2 --json F
#include <mpi.h>
#include <sys/mman.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <new>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tools/bench/sampling.h"
#include "tools/bench/statistics.h"

namespace {

using namespace shardcomm::tools;

enum class Kind {
  kAllGather,
  kReduceScatter,
  kAllReduce,
  kBroadcast,
  kAllToAll,
  kBarrier,
  kGather,
  kScatter,
  kReduce,
  kAllToAllV,
  kSendRecv,
  kPingPong
};
struct KindName {
  const char* name;
  Kind kind;
};
constexpr KindName kKinds[] = {{"all_gather", Kind::kAllGather}, {"reduce_scatter", Kind::kReduceScatter},
                               {"all_reduce", Kind::kAllReduce}, {"broadcast", Kind::kBroadcast},
                               {"all_to_all", Kind::kAllToAll},  {"barrier", Kind::kBarrier},
                               {"gather", Kind::kGather},        {"scatter", Kind::kScatter},
                               {"reduce", Kind::kReduce},        {"all_to_all_v", Kind::kAllToAllV},
                               {"sendrecv", Kind::kSendRecv},    {"pingpong", Kind::kPingPong}};

struct Spec {
  KindName kind{"", Kind::kBarrier};
  size_t begin_bytes = 8, end_bytes = size_t{256} << 20, factor = 2;  // of the whole buffer
  bool in_place = false;
  int iterations = 0, warmup = 5;
  std::string json;
};

struct Row {
  size_t bytes, count;
  Statistics time_us;
  int samples, batch;
  double algbw, busbw;
  uint64_t wrong;
};

[[noreturn]] void stop(const std::string& why) {
  std::fprintf(stderr, "mpi_bench: error: %s\n", why.c_str());
  MPI_Abort(MPI_COMM_WORLD, 2);
  std::exit(2);
}

size_t parse_size(const std::string& text) {
  char* end = nullptr;
  const unsigned long long number = std::strtoull(text.c_str(), &end, 10);
  const std::string_view unit(end);
  const int shift = unit.empty() ? 0 : unit == "K" ? 10 : unit == "M" ? 20 : unit == "G" ? 30 : -1;
  if (end == text.c_str() || shift < 0) stop("a size is a whole number with K, M or G, not '" + text + "'");
  return static_cast<size_t>(number) << shift;
}

Spec parse(int count, char** words) {
  Spec spec;
  bool known = false;
  for (int i = 1; i < count; ++i) {
    const std::string word = words[i];
    const auto value = [&] {
      if (i + 1 >= count) stop(word + " needs a value");
      return std::string(words[++i]);
    };
    if (word == "-b")
      spec.begin_bytes = parse_size(value());
    else if (word == "-e")
      spec.end_bytes = parse_size(value());
    else if (word == "-f")
      spec.factor = parse_size(value());
    else if (word == "--iters")
      spec.iterations = std::atoi(value().c_str());
    else if (word == "--warmup")
      spec.warmup = std::atoi(value().c_str());
    else if (word == "--json")
      spec.json = value();
    else if (word == "--in-place")
      spec.in_place = true;
    else {
      for (const KindName& kind : kKinds) {
        if (word == kind.name) spec.kind = kind, known = true;
      }
      if (!known) stop("unknown argument '" + word + "'");
    }
  }
  if (!known) {
    std::string names;
    for (const KindName& kind : kKinds) names += std::string(names.empty() ? "" : ", ") + kind.name;
    stop("give a collective: " + names);
  }
  if (spec.factor < 2) stop("-f is 2 or more");
  return spec;
}

class Memory {
 public:
  explicit Memory(size_t bytes) : bytes_(bytes + 4096) {
    base_ = mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (base_ == MAP_FAILED) stop("no memory for " + std::to_string(bytes) + " bytes");
    (void)madvise(base_, bytes_, MADV_HUGEPAGE);
  }
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;
  ~Memory() { munmap(base_, bytes_); }
  float* data() const { return static_cast<float*>(base_); }

 private:
  void* base_;
  size_t bytes_;
};

// Whole numbers whose sums over any number of ranks that this runs with are exact.
float element(int rank, size_t index) { return static_cast<float>((index * 7 + static_cast<size_t>(rank) * 13) % 251); }

// One size. Counts are floats; `count` is the argument of the call.
class Bench {
 public:
  Bench(const Spec& spec, size_t bytes, float* in, float* out) : spec_(spec), in_(in), out_(out) {
    MPI_Comm_rank(MPI_COMM_WORLD, &rank_);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks_);
    const size_t elements = std::max(bytes / sizeof(float), size_t{1});
    const auto n = static_cast<size_t>(ranks_);
    const bool whole = kind() == Kind::kAllReduce || kind() == Kind::kBroadcast || kind() == Kind::kReduce ||
                       kind() == Kind::kAllToAllV || is_messages();
    if (kind() == Kind::kBarrier) return;
    count_ = whole ? elements : std::max(elements / n, size_t{1});
    bytes_ = count_ * (whole ? 1 : n) * sizeof(float);
    if (kind() == Kind::kAllToAllV) lay_out_pairs(elements);
  }

  size_t count() const { return count_; }
  size_t bytes() const { return bytes_; }

  void call() {
    const int count = static_cast<int>(count_);
    void* const self = MPI_IN_PLACE;
    switch (kind()) {
      case Kind::kAllGather:
        MPI_Allgather(spec_.in_place ? self : in_, spec_.in_place ? 0 : count, MPI_FLOAT, out_, count, MPI_FLOAT,
                      MPI_COMM_WORLD);
        break;
      case Kind::kReduceScatter:  // in place, MPI gives the result at the beginning of the buffer
        MPI_Reduce_scatter_block(spec_.in_place ? self : in_, out_, count, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
        break;
      case Kind::kAllReduce:
        MPI_Allreduce(spec_.in_place ? self : in_, out_, count, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
        break;
      case Kind::kBroadcast: MPI_Bcast(out_, count, MPI_FLOAT, 0, MPI_COMM_WORLD); break;
      case Kind::kAllToAll: MPI_Alltoall(in_, count, MPI_FLOAT, out_, count, MPI_FLOAT, MPI_COMM_WORLD); break;
      case Kind::kBarrier: MPI_Barrier(MPI_COMM_WORLD); break;
      case Kind::kGather:
        MPI_Gather(is_in_place_root() ? self : in_, count, MPI_FLOAT, out_, count, MPI_FLOAT, 0, MPI_COMM_WORLD);
        break;
      case Kind::kScatter:
        MPI_Scatter(is_in_place_root() ? out_ : in_, count, MPI_FLOAT, is_in_place_root() ? self : out_, count,
                    MPI_FLOAT, 0, MPI_COMM_WORLD);
        break;
      case Kind::kReduce:
        MPI_Reduce(is_in_place_root() ? self : in_, out_, count, MPI_FLOAT, MPI_SUM, 0, MPI_COMM_WORLD);
        break;
      case Kind::kAllToAllV:
        MPI_Alltoallv(in_, counts_.data(), offsets_.data(), MPI_FLOAT, out_, counts_.data(), offsets_.data(), MPI_FLOAT,
                      MPI_COMM_WORLD);
        break;
      case Kind::kSendRecv:
        MPI_Sendrecv(in_, count, MPI_FLOAT, target(), 0, out_, count, MPI_FLOAT, source(), 0, MPI_COMM_WORLD,
                     MPI_STATUS_IGNORE);
        break;
      case Kind::kPingPong:
        if (source() < 0) break;
        if (rank_ % 2 == 0) MPI_Send(in_, count, MPI_FLOAT, source(), 0, MPI_COMM_WORLD);
        MPI_Recv(out_, count, MPI_FLOAT, source(), 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        if (rank_ % 2 == 1) MPI_Send(in_, count, MPI_FLOAT, source(), 0, MPI_COMM_WORLD);
        break;
    }
  }

  uint64_t verify() {
    prepare();
    call();
    uint64_t wrong = 0;
    const auto n = static_cast<size_t>(ranks_);
    const auto me = static_cast<size_t>(rank_);
    switch (kind()) {
      case Kind::kAllGather:
        for (size_t i = 0; i < count_ * n; ++i) wrong += out_[i] != element(static_cast<int>(i / count_), i % count_);
        break;
      case Kind::kReduceScatter:
        for (size_t i = 0; i < count_; ++i) wrong += out_[i] != sum(me * count_ + i);
        break;
      case Kind::kAllReduce:
        for (size_t i = 0; i < count_; ++i) wrong += out_[i] != sum(i);
        break;
      case Kind::kBroadcast:
        for (size_t i = 0; i < count_; ++i) wrong += out_[i] != element(0, i);
        break;
      case Kind::kAllToAll:
        for (size_t i = 0; i < count_ * n; ++i)
          wrong += out_[i] != element(static_cast<int>(i / count_), me * count_ + i % count_);
        break;
      case Kind::kBarrier: break;
      case Kind::kGather:
        for (size_t i = 0; rank_ == 0 && i < count_ * n; ++i)
          wrong += out_[i] != element(static_cast<int>(i / count_), i % count_);
        break;
      case Kind::kScatter:
        for (size_t i = 0; i < count_; ++i) wrong += out_[i] != element(0, me * count_ + i);
        break;
      case Kind::kReduce:
        for (size_t i = 0; rank_ == 0 && i < count_; ++i) wrong += out_[i] != sum(i);
        break;
      case Kind::kAllToAllV:
        for (size_t source = 0; source < n; ++source) {
          size_t from = 0;
          for (size_t reader = 0; reader < me; ++reader) from += shares_[(source + reader) % n];
          const auto to = static_cast<size_t>(offsets_[source]);
          for (size_t i = 0; i < shares_[(source + me) % n]; ++i)
            wrong += out_[to + i] != element(static_cast<int>(source), from + i);
        }
        break;
      case Kind::kSendRecv:
      case Kind::kPingPong:
        for (size_t i = 0; source() >= 0 && i < count_; ++i) wrong += out_[i] != element(source(), i);
        break;
    }
    uint64_t all = 0;
    MPI_Allreduce(&wrong, &all, 1, MPI_UINT64_T, MPI_SUM, MPI_COMM_WORLD);
    return all;
  }

  // See tools/bench/sampling.h.
  void time(Row& row) {
    for (int i = 0; i < spec_.warmup; ++i) call();
    MPI_Barrier(MPI_COMM_WORLD);
    double least_us = 1e12;
    for (int i = 0; i < kTrialCalls; ++i) {
      const double begin = now_us();
      call();
      least_us = std::min(least_us, now_us() - begin);
    }
    double call_us = 0;
    MPI_Allreduce(&least_us, &call_us, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
    row.batch = batch_for(call_us);
    row.samples = spec_.iterations > 0 ? spec_.iterations : samples_for(call_us, row.batch);
    const int blocks = std::min(kBlocks, row.samples);
    std::vector<double> times;
    for (int block = 0; block < blocks; ++block) {
      const auto end = static_cast<size_t>(row.samples * (block + 1) / blocks);
      MPI_Barrier(MPI_COMM_WORLD);
      call();
      double begin = now_us();
      while (times.size() < end) {
        for (int k = 0; k < row.batch; ++k) call();
        const double now = now_us();
        times.push_back((now - begin) / row.batch);
        begin = now;
      }
    }
    std::vector<double> all(times.size() * static_cast<size_t>(ranks_));
    const int count = static_cast<int>(times.size());
    MPI_Allgather(times.data(), count, MPI_DOUBLE, all.data(), count, MPI_DOUBLE, MPI_COMM_WORLD);
    if (kind() == Kind::kPingPong) {
      for (double& there_and_back : all) there_and_back /= 2;
    }
    row.time_us = statistics_of(slowest_of(all, times.size()));
    row.algbw = static_cast<double>(row.bytes) / row.time_us.median / 1e3;
    row.busbw = row.algbw * bus_factor();
  }

 private:
  Kind kind() const { return spec_.kind.kind; }
  bool is_messages() const { return kind() == Kind::kSendRecv || kind() == Kind::kPingPong; }
  // As in `shardcomm bench`: the previous and the next rank, or the other one of a pair (-1: there is none).
  int source() const {
    if (kind() == Kind::kSendRecv) return (rank_ + ranks_ - 1) % ranks_;
    return (rank_ ^ 1) < ranks_ ? rank_ ^ 1 : -1;
  }
  int target() const { return (rank_ + 1) % ranks_; }
  bool is_in_place_root() const { return spec_.in_place && rank_ == 0; }

  // Ranks r and s give each other the share (r + s) mod n of what each gives in all; the shares are 1 : 2 : 3 : …, as
  // in `shardcomm bench`.
  void lay_out_pairs(size_t elements) {
    const auto n = static_cast<size_t>(ranks_);
    size_t left = elements;
    for (size_t i = 0; i + 1 < n; ++i) {
      const double part = 2 * static_cast<double>(i + 1) / static_cast<double>(n * (n + 1));
      shares_.push_back(std::min(left, static_cast<size_t>(static_cast<double>(elements) * part)));
      left -= shares_.back();
    }
    shares_.push_back(left);
    int offset = 0;
    for (size_t r = 0; r < n; ++r) {
      counts_.push_back(static_cast<int>(shares_[(static_cast<size_t>(rank_) + r) % n]));
      offsets_.push_back(offset);
      offset += counts_.back();
    }
  }

  float sum(size_t index) const {
    float total = 0;
    for (int rank = 0; rank < ranks_; ++rank) total += element(rank, index);
    return total;
  }

  void prepare() {
    if (kind() == Kind::kBarrier) return;
    const auto n = static_cast<size_t>(ranks_);
    const size_t whole = bytes_ / sizeof(float);
    for (size_t i = 0; i < whole; ++i) out_[i] = -1;
    if (kind() == Kind::kBroadcast) {
      for (size_t i = 0; i < count_ && rank_ == 0; ++i) out_[i] = element(0, i);
    } else if (kind() == Kind::kAllGather) {
      float* const mine = spec_.in_place ? out_ + static_cast<size_t>(rank_) * count_ : in_;
      for (size_t i = 0; i < count_; ++i) mine[i] = element(rank_, i);
    } else {
      const bool rooted = kind() == Kind::kGather || kind() == Kind::kScatter || kind() == Kind::kReduce;
      const bool exchanges = kind() == Kind::kAllToAll || kind() == Kind::kAllToAllV || is_messages();
      float* const mine = (rooted ? is_in_place_root() : spec_.in_place && !exchanges) ? out_ : in_;
      const bool one_part = kind() == Kind::kAllReduce || kind() == Kind::kReduce || kind() == Kind::kGather ||
                            kind() == Kind::kAllToAllV || is_messages();
      const size_t elements = one_part ? count_ : count_ * n;
      for (size_t i = 0; i < elements; ++i) mine[i] = element(rank_, i);
    }
  }

  double bus_factor() const {
    const double part = static_cast<double>(ranks_ - 1) / ranks_;
    if (kind() == Kind::kAllReduce) return 2 * part;
    if (kind() == Kind::kBroadcast || kind() == Kind::kReduce || is_messages()) return 1;
    return kind() == Kind::kBarrier ? 0 : part;
  }

  const Spec& spec_;
  float* in_;
  float* out_;
  int rank_ = 0, ranks_ = 1;
  size_t count_ = 0, bytes_ = 0;
  std::vector<size_t> shares_;         // of MPI_Alltoallv
  std::vector<int> counts_, offsets_;  // of the same, by peer
};

// "Open MPI v4.1.4" and "MPICH 4.0.2", out of what the library says at length.
std::string library() {
  char text[MPI_MAX_LIBRARY_VERSION_STRING];
  int length = 0;
  MPI_Get_library_version(text, &length);
  std::string name(text, static_cast<size_t>(length));
  name = name.substr(0, name.find_first_of(",\n"));
  if (name.starts_with("MPICH")) {
    const size_t number = name.find_first_of("0123456789");
    name = "MPICH " + (number == std::string::npos ? "" : name.substr(number));
  }
  for (char& c : name) {
    if (c == '"' || c == '\\' || static_cast<unsigned char>(c) < ' ') c = ' ';
  }
  return name;
}

void write_json(const Spec& spec, int ranks, const std::vector<Row>& rows) {
  std::FILE* file = std::fopen(spec.json.c_str(), "w");
  if (file == nullptr) stop("cannot write '" + spec.json + "'");
  const bool in_place = spec.in_place || spec.kind.kind == Kind::kBroadcast;
  std::fprintf(file,
               "{\n  \"program\": \"%s\",\n  \"collective\": \"%s\",\n  \"ranks\": %d,\n  \"mode\": \"processes\",\n"
               "  \"memory\": \"ordinary\",\n  \"in_place\": %s,\n  \"iterations\": %d,\n  \"warmup\": %d,\n"
               "  \"results\": [",
               library().c_str(), spec.kind.name, ranks, in_place ? "true" : "false", spec.iterations, spec.warmup);
  for (size_t i = 0; i < rows.size(); ++i) {
    const Row& row = rows[i];
    const Statistics& t = row.time_us;
    const bool reduces =
        spec.kind.kind == Kind::kReduceScatter || spec.kind.kind == Kind::kAllReduce || spec.kind.kind == Kind::kReduce;
    std::fprintf(file,
                 "%s\n    {\"bytes\": %zu, \"count\": %zu, \"dtype\": \"f32\", \"op\": \"%s\", \"time_us\": {\"min\": "
                 "%.6g, \"median\": %.6g, \"max\": %.6g, \"mean\": %.6g, \"p50\": %.6g, \"p90\": %.6g, \"p99\": %.6g}, "
                 "\"samples\": %d, \"batch\": %d, \"algbw\": %.6g, \"busbw\": %.6g, \"wrong\": %llu, \"limit\": null}",
                 i == 0 ? "" : ",", row.bytes, row.count, reduces ? "sum" : "none", t.min, t.median, t.max, t.mean,
                 t.median, t.p90, t.p99, row.samples, row.batch, row.algbw, row.busbw,
                 static_cast<unsigned long long>(row.wrong));
  }
  std::fprintf(file, "\n  ]\n}\n");
  if (std::fclose(file) != 0) stop("cannot write '" + spec.json + "'");
}

uint64_t run(const Spec& spec) {
  int rank = 0, ranks = 1;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  const bool barrier = spec.kind.kind == Kind::kBarrier;
  const size_t most = barrier ? 0 : std::max(spec.end_bytes, sizeof(float) * static_cast<size_t>(ranks));
  const Memory in(most), out(most);
  std::vector<Row> rows;
  uint64_t wrong = 0;
  if (rank == 0) {
    std::printf("# %s, %s, %d ranks\n%12s %12s %12s %12s %12s %9s %9s %8s\n", library().c_str(), spec.kind.name, ranks,
                "bytes", "count", "min_us", "median_us", "max_us", "algbw", "busbw", "wrong");
  }
  for (size_t bytes = spec.begin_bytes; bytes <= spec.end_bytes; bytes *= spec.factor) {
    Bench bench(spec, bytes, in.data(), out.data());
    if (!rows.empty() && rows.back().bytes == bench.bytes()) {
      if (barrier) break;
      continue;
    }
    Row row{bench.bytes(), bench.count(), {}, 0, 1, 0, 0, bench.verify()};
    bench.time(row);
    rows.push_back(row);
    wrong += row.wrong;
    if (rank != 0) continue;
    std::printf("%12zu %12zu %12.2f %12.2f %12.2f %9.3f %9.3f %8llu\n", row.bytes, row.count, row.time_us.min,
                row.time_us.median, row.time_us.max, row.algbw, row.busbw, static_cast<unsigned long long>(row.wrong));
    std::fflush(stdout);
  }
  if (rank == 0 && !spec.json.empty()) write_json(spec, ranks, rows);
  return wrong;
}

}  // namespace

int main(int count, char** words) {
  MPI_Init(&count, &words);
  const uint64_t wrong = run(parse(count, words));
  MPI_Finalize();
  return wrong == 0 ? 0 : 1;
}
