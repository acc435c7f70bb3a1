// Copy and reduce on one core, in bytes read plus bytes written a second, beside the limits of the machine:
//   limit/copy  memcpy            limit/add  a loop a[i] + b[i], as STREAM's
// Every kernel is checked against the portable path before it is timed. On a busy machine compare with
// --benchmark_enable_random_interleaving=true --benchmark_repetitions=9.
#include <benchmark/benchmark.h>

#include <cstring>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "kernels/host_path.h"
#include "kernels/kernels.h"

namespace shardcomm::kernels {
namespace {

constexpr size_t kKiB = 1024;
constexpr size_t kMiB = 1024 * kKiB;

using Buffer = std::vector<std::byte>;

// Elements of `dtype` between 1 and 2 (integers: anything), so that no arithmetic meets subnormals.
Buffer random_buffer(DType dtype, size_t bytes) {
  static std::mt19937_64 random(20240229);
  Buffer buffer(bytes);
  for (size_t i = 0; i + 8 <= bytes; i += 8) {
    uint64_t bits = random();
    switch (dtype) {
      case DType::kF64: bits = (bits & 0x000fffffffffffff) | 0x3ff0000000000000; break;
      case DType::kF32: bits = (bits & 0x007fffff007fffff) | 0x3f8000003f800000; break;
      case DType::kBF16: bits = (bits & 0x007f007f007f007f) | 0x3f803f803f803f80; break;
      case DType::kF16: bits = (bits & 0x03ff03ff03ff03ff) | 0x3c003c003c003c00; break;
      case DType::kF8E4M3: bits = (bits & 0x0707070707070707) | 0x3838383838383838; break;
      case DType::kF8E5M2: bits = (bits & 0x0303030303030303) | 0x3c3c3c3c3c3c3c3c; break;
      default: break;
    }
    std::memcpy(&buffer[i], &bits, sizeof bits);
  }
  return buffer;
}

void report(benchmark::State& state, size_t traffic_bytes) {
  state.SetBytesProcessed(static_cast<int64_t>(traffic_bytes) * state.iterations());
}

void copy_limit(benchmark::State& state, size_t bytes) {
  const Buffer source = random_buffer(DType::kU8, bytes);
  Buffer target(bytes);
  for (auto _ : state) {
    std::memcpy(target.data(), source.data(), bytes);
    benchmark::ClobberMemory();
  }
  report(state, 2 * bytes);
}

void copy_kernel(benchmark::State& state, size_t bytes) {
  const Buffer source = random_buffer(DType::kU8, bytes);
  Buffer target(bytes);
  const auto copy = [&] { return launch(CopyLaunch{target.data(), source.data(), bytes}, StreamRef::caller()); };
  if (!copy().ok() || target != source) return state.SkipWithError("wrong");
  for (auto _ : state) {
    (void)copy();
    benchmark::ClobberMemory();
  }
  report(state, 2 * bytes);
}

void add_limit(benchmark::State& state, size_t bytes) {
  const size_t count = bytes / sizeof(float);
  std::vector<float> a(count, 1.5f), b(count, 2.5f), target(count);
  for (auto _ : state) {
    for (size_t i = 0; i < count; ++i) target[i] = a[i] + b[i];
    benchmark::ClobberMemory();
  }
  report(state, 3 * bytes);
}

struct Reduction {
  DType dtype;
  ReduceOp op;
  size_t sources;
  size_t bytes;  // of the target
  bool in_place = false;
};

void reduce_kernel(benchmark::State& state, const Reduction& what) {
  std::vector<Buffer> buffers;
  for (size_t k = 0; k < what.sources; ++k) buffers.push_back(random_buffer(what.dtype, what.bytes));
  std::vector<const void*> sources;
  for (const Buffer& buffer : buffers) sources.push_back(buffer.data());
  Buffer target(what.bytes), expected(what.bytes);
  const auto reduce = [&](Buffer& into) {
    const ReduceLaunch reduction{.target = into.data(),
                                 .sources = sources,
                                 .count = what.bytes / size_of(what.dtype),
                                 .dtype = what.dtype,
                                 .op = what.op};
    return launch(reduction, StreamRef::caller());
  };
  if (!reduce(target).ok()) return state.SkipWithError("refused");
  {
    const HostPathOverride portable(host_paths().back(), std::numeric_limits<size_t>::max());
    if (!reduce(expected).ok() || target != expected) return state.SkipWithError("wrong");
  }
  Buffer& into = what.in_place ? buffers[0] : target;  // then sums grow without bound, at the same speed
  for (auto _ : state) {
    (void)reduce(into);
    benchmark::ClobberMemory();
  }
  report(state, (what.sources + 1) * what.bytes);
}

std::string bytes_text(size_t bytes) {
  return bytes >= kMiB ? std::to_string(bytes / kMiB) + "MiB" : std::to_string(bytes / kKiB) + "KiB";
}

void add(const Reduction& what) {
  const std::string text = "reduce/" + std::string(name(what.dtype)) + "/" + std::string(name(what.op)) + "/" +
                           std::to_string(what.sources) + (what.in_place ? "_in_place/" : "/") + bytes_text(what.bytes);
  benchmark::RegisterBenchmark(text.c_str(), [what](benchmark::State& state) { reduce_kernel(state, what); });
}

void add_all() {
  for (const size_t bytes : {16 * kKiB, kMiB, 16 * kMiB, 64 * kMiB, 256 * kMiB}) {
    const auto with_bytes = [bytes](const std::string& what, auto run) {
      benchmark::RegisterBenchmark((what + bytes_text(bytes)).c_str(),
                                   [run, bytes](benchmark::State& state) { run(state, bytes); });
    };
    with_bytes("limit/copy/", copy_limit);
    with_bytes("copy/", copy_kernel);
    with_bytes("limit/add/", add_limit);
    for (const DType dtype : {DType::kF32, DType::kBF16, DType::kF16}) add({dtype, ReduceOp::kSum, 2, bytes});
  }
  for (const size_t bytes : {16 * kKiB, 64 * kMiB}) {
    for (const size_t sources : std::initializer_list<size_t>{3, 4, 8, 16}) {
      for (const DType dtype : {DType::kF32, DType::kBF16}) add({dtype, ReduceOp::kSum, sources, bytes});
    }
    for (int d = 0; d < kDTypeCount; ++d) {
      for (int op = 0; op < kReduceOpCount; ++op) {
        const Reduction what{static_cast<DType>(d), static_cast<ReduceOp>(op), 2, bytes};
        const bool known = what.op == ReduceOp::kSum &&
                           (what.dtype == DType::kF32 || what.dtype == DType::kBF16 || what.dtype == DType::kF16);
        if (supports(what.dtype, what.op) && !known) add(what);
      }
    }
    add({DType::kF32, ReduceOp::kSum, 2, bytes, true});
  }
}

}  // namespace
}  // namespace shardcomm::kernels

int main(int argc, char** argv) {
  shardcomm::kernels::add_all();
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 1;
  benchmark::RunSpecifiedBenchmarks();
  benchmark::Shutdown();
  return 0;
}
