// Host kernels: every dtype, op and number of sources at every alignment, bit for bit against the reference, on every
// host path with and without streaming stores; inputs unchanged and guard bytes intact.
#include "kernels/kernels.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <iostream>
#include <limits>
#include <string>
#include <vector>

#include "kernels/host_path.h"
#include "tests/support/reference.h"

namespace shardcomm::kernels {
namespace {

constexpr size_t kGuardBytes = 64;
constexpr std::byte kGuard{0xa5};
using Sizes = std::initializer_list<size_t>;
constexpr size_t kNever = std::numeric_limits<size_t>::max();

// Guard bytes, `bytes` of poison at `offset` past a 64-byte boundary, guard bytes.
class Guarded {
 public:
  Guarded(size_t bytes, size_t offset) : bytes_(bytes), memory_(bytes + 3 * kGuardBytes + offset, kGuard) {
    const auto address = reinterpret_cast<uintptr_t>(memory_.data());
    start_ = kGuardBytes + offset + (-address) % 64;
  }
  std::byte* data() { return memory_.data() + start_; }
  void poison() { std::memset(data(), 0x5a, bytes_); }
  bool intact() const {
    for (size_t i = 0; i < memory_.size(); ++i) {
      if ((i < start_ || i >= start_ + bytes_) && memory_[i] != kGuard) return false;
    }
    return true;
  }

 private:
  size_t bytes_;
  std::vector<std::byte> memory_;
  size_t start_;
};

uint64_t canonical_nan(DType dtype) { return (uint64_t{1} << (8 * size_of(dtype) - 1)) - 1; }

// Of results: NaNs as the door promises them.
void canonicalize(std::byte* elements, size_t count, DType dtype) {
  if (is_complex(dtype))
    return canonicalize(elements, 2 * count, dtype == DType::kComplex64 ? DType::kF32 : DType::kF64);
  if (!is_floating(dtype)) return;
  const size_t size = size_of(dtype);
  for (size_t i = 0; i < count; ++i) {
    uint64_t bits = 0;
    std::memcpy(&bits, elements + i * size, size);
    double value = 0;
    if (dtype == DType::kF64) {
      std::memcpy(&value, &bits, sizeof value);
    } else if (dtype == DType::kF32) {
      float narrow;
      std::memcpy(&narrow, &bits, sizeof narrow);
      value = narrow;
    } else {
      value = testing::decode_small(static_cast<uint32_t>(bits), dtype);
    }
    const uint64_t nan = canonical_nan(dtype);
    if (std::isnan(value)) std::memcpy(elements + i * size, &nan, size);
  }
}

// Sources of one dtype, at 64-byte boundaries: tame numbers with specials, and random bits in every fourth.
class Sources {
 public:
  Sources(DType dtype, size_t count, size_t elements) : dtype_(dtype) {
    const uint64_t seed = testing::test_seed();
    for (size_t k = 0; k < count; ++k) {
      auto& buffer = buffers_.emplace_back(elements * size_of(dtype), 0);
      const auto rank = static_cast<Rank>(k);
      if (k % 4 != 3) {
        testing::fill_elements(buffer.data(), seed, rank, 0, elements, dtype);
      } else {
        testing::fill_elements(buffer.data(), seed, rank, 0, elements * size_of(dtype) / 8, DType::kU64);
      }
    }
    for (Guarded& buffer : buffers_) {
      pristine_.emplace_back(buffer.data(), buffer.data() + elements * size_of(dtype));
    }
  }

  // `count` sources whose first elements have different alignments; `shift` rotates them.
  std::vector<const void*> pointers(size_t count, size_t shift) {
    const size_t places = 16 / size_of(dtype_);
    std::vector<const void*> result;
    for (size_t k = 0; k < count; ++k) {
      result.push_back(buffers_[k].data() + (shift + k) % places * size_of(dtype_));
    }
    return result;
  }

  bool unchanged() {
    for (size_t k = 0; k < buffers_.size(); ++k) {
      if (std::memcmp(buffers_[k].data(), pristine_[k].data(), pristine_[k].size()) != 0) return false;
    }
    return true;
  }

 private:
  DType dtype_;
  std::vector<Guarded> buffers_;
  std::vector<std::vector<std::byte>> pristine_;
};

struct Case {
  DType dtype;
  ReduceOp op;
  std::vector<const void*> sources;
  size_t count;
  size_t offset;  // of the target from a 64-byte boundary, in bytes
  double scale = 1;

  size_t bytes() const { return count * size_of(dtype); }
  ReduceLaunch into(void* target) const {
    return {.target = target, .sources = sources, .count = count, .dtype = dtype, .op = op, .scale = scale};
  }
  std::string text() const {
    return std::string(name(op)) + " of " + std::string(name(dtype)) + ", " + std::to_string(sources.size()) +
           " sources, " + std::to_string(count) + " elements, target at " + std::to_string(offset) + ", seed " +
           std::to_string(testing::test_seed());
  }
};

std::vector<std::byte> expected_of(const Case& test) {
  std::vector<std::byte> expected(test.bytes());
  std::vector<const std::byte*> sources;
  for (const void* source : test.sources) sources.push_back(static_cast<const std::byte*>(source));
  if (sources.size() == 1 && test.scale == 1 && test.dtype != DType::kBool) {
    if (test.count != 0) std::memcpy(expected.data(), sources[0], expected.size());
  } else {
    testing::reduce_elements(expected.data(), sources, test.count, test.dtype, test.op, test.scale);
    canonicalize(expected.data(), test.count, test.dtype);
  }
  return expected;
}

// Calls `check` with every path that runs here, without and with the treatment of large traffic.
template <class Check>
void on_every_path(Check check) {
  for (const HostPath& path : host_paths()) {
    if (!path.runs_here()) continue;
    for (const size_t large_bytes : {kNever, size_t{0}}) {
      const HostPathOverride chosen(path, large_bytes);
      SCOPED_TRACE(std::string(path.name) + (large_bytes == 0 ? ", large" : ""));
      check();
      if (::testing::Test::HasFatalFailure()) return;
    }
  }
}

void expect_same(const Case& test, const std::byte* got, const std::vector<std::byte>& expected) {
  if (test.count == 0 || std::memcmp(got, expected.data(), expected.size()) == 0) return;
  const size_t size = size_of(test.dtype);
  size_t i = 0;
  while (std::memcmp(got + i * size, expected.data() + i * size, size) == 0) ++i;
  FAIL() << test.text() << ": element " << i << " is " << testing::element_text(got, i, test.dtype) << ", not "
         << testing::element_text(expected.data(), i, test.dtype);
}

void check_case(const Case& test) {
  const std::vector<std::byte> expected = expected_of(test);
  Guarded target(test.bytes(), test.offset);
  on_every_path([&] {
    target.poison();
    const Status status = launch(test.into(target.data()), StreamRef::caller());
    ASSERT_TRUE(status.ok()) << test.text() << ": " << status.to_string();
    ASSERT_TRUE(target.intact()) << test.text();
    expect_same(test, target.data(), expected);
  });
}

// The target is source `place` as well.
void check_in_place(Case test, size_t place) {
  const std::vector<std::byte> expected = expected_of(test);
  const void* original = test.sources[place];
  Guarded target(test.bytes(), test.offset);
  on_every_path([&] {
    std::memcpy(target.data(), original, test.bytes());
    test.sources[place] = target.data();
    const Status status = launch(test.into(target.data()), StreamRef::caller());
    ASSERT_TRUE(status.ok()) << status.to_string();
    ASSERT_TRUE(target.intact()) << test.text();
    expect_same(test, target.data(), expected);
  });
}

class ReduceKernels : public ::testing::TestWithParam<DType> {
 protected:
  template <class Check>
  void for_each_op(Check check) {
    for (int op = 0; op < kReduceOpCount; ++op) {
      if (!supports(GetParam(), static_cast<ReduceOp>(op))) continue;
      check(static_cast<ReduceOp>(op));
      if (HasFatalFailure()) return;
    }
  }
};

INSTANTIATE_TEST_SUITE_P(Each, ReduceKernels,
                         ::testing::Values(DType::kU8, DType::kI32, DType::kF16, DType::kBF16, DType::kF32, DType::kF64,
                                           DType::kI64, DType::kI8, DType::kU32, DType::kU64, DType::kF8E4M3,
                                           DType::kF8E5M2, DType::kI16, DType::kU16, DType::kBool, DType::kComplex64,
                                           DType::kComplex128),
                         [](const auto& info) { return std::string(name(info.param)); });

TEST_P(ReduceKernels, AreExactForEveryOpCountAndAlignment) {
  const size_t size = size_of(GetParam());
  Sources inputs(GetParam(), 17, 4099 + 16);
  for_each_op([&](ReduceOp op) {
    for (const size_t sources : Sizes{1, 2, 3, 4, 5, 8, 17}) {
      for (const size_t count : Sizes{0, 1, 3, 17, 31, 32, 33, 1000, 4099}) {
        for (size_t offset = 0; offset < 16; offset += align_of(GetParam())) {
          if (count >= 1000 && offset > size && offset + size < 16) continue;  // quick: the ends of the range
          ASSERT_NO_FATAL_FAILURE(
              check_case({GetParam(), op, inputs.pointers(sources, offset / size + count), count, offset}));
        }
      }
    }
  });
  EXPECT_TRUE(inputs.unchanged());
}

TEST_P(ReduceKernels, WorkInPlace) {
  const size_t size = size_of(GetParam());
  Sources inputs(GetParam(), 17, 3000);
  for_each_op([&](ReduceOp op) {
    for (const size_t sources : Sizes{1, 2, 3, 8, 9, 17}) {
      for (const size_t place : {size_t{0}, sources / 2, sources - 1}) {
        for (const size_t count : Sizes{1, 33, 2600}) {
          ASSERT_NO_FATAL_FAILURE(check_in_place({GetParam(), op, inputs.pointers(sources, 3), count, size}, place));
        }
      }
    }
  });
  EXPECT_TRUE(inputs.unchanged());
}

// More sources than are read side by side, and more elements than one piece of them holds.
TEST_P(ReduceKernels, CombineManySources) {
  Sources inputs(GetParam(), 64, 9017);
  for_each_op([&](ReduceOp op) {
    for (const size_t sources : Sizes{9, 16, 25, 64}) {
      ASSERT_NO_FATAL_FAILURE(check_case({GetParam(), op, inputs.pointers(sources, sources), 9001, 0}));
    }
  });
  EXPECT_TRUE(inputs.unchanged());
}

// Every pair of 8-bit patterns, and as many pairs of the wider ones at random: all special values meet.
TEST_P(ReduceKernels, AreExactForAllPairsOfPatterns) {
  const size_t size = size_of(GetParam());
  constexpr size_t kPairs = 65536;
  std::vector<std::byte> left(kPairs * size), right(kPairs * size);
  if (size == 1) {
    for (size_t i = 0; i < kPairs; ++i) {
      left[i] = static_cast<std::byte>(i / 256);
      right[i] = static_cast<std::byte>(i % 256);
    }
  } else {
    testing::fill_elements(left.data(), testing::test_seed(), 1, 0, left.size() / 8, DType::kU64);
    testing::fill_elements(right.data(), testing::test_seed(), 2, 0, right.size() / 8, DType::kU64);
    // The same pattern on both sides, the next one, and zeros of both signs.
    for (size_t i = 0; i < kPairs / 4; ++i) std::memcpy(&right[i * size], &left[i * size], size);
    for (size_t i = 0; i < kPairs / 8; ++i) right[i * size] ^= std::byte{1};
    for (size_t i = 0; i < 64; ++i) {
      std::memset(&left[i * size], 0, size);
      std::memset(&right[i * size], 0, size);
      left[i * size + size - 1] = std::byte{i % 2 == 0 ? uint8_t{0x80} : uint8_t{0}};
      right[i * size + size - 1] = std::byte{i % 4 < 2 ? uint8_t{0x80} : uint8_t{0}};
    }
  }
  for_each_op([&](ReduceOp op) {
    ASSERT_NO_FATAL_FAILURE(check_case({GetParam(), op, {left.data(), right.data()}, kPairs, 0}));
  });
}

// What each path chooses by itself for more bytes than the caches hold.
TEST_P(ReduceKernels, AreExactBeyondTheCaches) {
  const size_t count = (size_t{6} << 20) / size_of(GetParam()) + 3;
  Sources inputs(GetParam(), 2, count + 16);
  Case test{GetParam(), ReduceOp::kSum, inputs.pointers(2, 1), count, size_of(GetParam())};
  Guarded target(test.bytes(), test.offset);
  target.poison();
  ASSERT_TRUE(launch(test.into(target.data()), StreamRef::caller()).ok());
  EXPECT_TRUE(target.intact());
  EXPECT_TRUE(inputs.unchanged());
  // The reference is slow; the path that cannot stream, in small pieces, has been compared with it above.
  const HostPathOverride portable(host_paths().back(), kNever);
  std::vector<std::byte> expected(test.bytes());
  for (size_t done = 0; done < count; done += 1001) {
    Case piece = test;
    piece.count = std::min<size_t>(1001, count - done);
    for (const void*& source : piece.sources) {
      source = static_cast<const std::byte*>(source) + done * size_of(test.dtype);
    }
    ASSERT_TRUE(launch(piece.into(expected.data() + done * size_of(test.dtype)), StreamRef::caller()).ok());
  }
  expect_same(test, target.data(), expected);
}

// Every type that has a scale, every op, and numbers of sources from one on; bits as the reference multiplies.
TEST_P(ReduceKernels, ScaleTheResultBeforeItIsRounded) {
  if (!has_scale(GetParam())) GTEST_SKIP() << name(GetParam()) << " has no scale";
  Sources inputs(GetParam(), 17, 1100);
  for_each_op([&](ReduceOp op) {
    for (const double scale : {0.5, 1.0 / 3, -2.0, 0.0}) {
      for (const size_t sources : Sizes{1, 2, 5, 17}) {
        for (const size_t count : Sizes{1, 17, 1001}) {
          ASSERT_NO_FATAL_FAILURE(check_case({GetParam(), op, inputs.pointers(sources, count), count, 0, scale}));
        }
      }
    }
  });
}

TEST(Kernels, RefuseWhatIsNotDefined) {
  int32_t value = 7;
  const void* source = &value;
  for (int d = 0; d < kDTypeCount; ++d) {
    const auto dtype = static_cast<DType>(d);
    if (is_floating(dtype) || is_complex(dtype)) continue;
    const ReduceLaunch average{
        .target = &value, .sources = {&source, 1}, .count = 0, .dtype = dtype, .op = ReduceOp::kAverage};
    const Status status = launch(average, StreamRef::caller());
    EXPECT_EQ(status.code(), Code::kUnsupported);
    EXPECT_EQ(status.message(), "reduce: average of " + std::string(name(dtype)) + " is not defined");
  }
  const auto no_dtype = static_cast<DType>(kDTypeCount);
  const ReduceLaunch undefined{
      .target = &value, .sources = {&source, 1}, .count = 1, .dtype = no_dtype, .op = ReduceOp::kSum};
  EXPECT_EQ(launch(undefined, StreamRef::caller()).code(), Code::kUnsupported);
  const ReduceLaunch without_sources{
      .target = &value, .sources = {}, .count = 1, .dtype = DType::kI32, .op = ReduceOp::kSum};
  EXPECT_EQ(launch(without_sources, StreamRef::caller()).code(), Code::kInvalidArgument);
  EXPECT_EQ(value, 7);
}

TEST(Kernels, RunOnHostStreamsAndRefuseCudaStreams) {
  int32_t target = 0;
  const int32_t values[] = {5, -7};
  const void* sources[] = {&values[0], &values[1]};
  const ReduceLaunch reduce{
      .target = &target, .sources = sources, .count = 1, .dtype = DType::kI32, .op = ReduceOp::kSum};
  int any = 0;  // launches do not look into the stream: the caller is its thread
  EXPECT_TRUE(launch(reduce, StreamRef::host(&any)).ok());
  EXPECT_EQ(target, -2);
  EXPECT_TRUE(launch(CopyLaunch{&target, &values[0], sizeof target}, StreamRef::host(&any)).ok());
  EXPECT_EQ(target, 5);
  EXPECT_EQ(launch(reduce, StreamRef::cuda(nullptr, 0)).code(), Code::kUnsupported);
  EXPECT_EQ(launch(CopyLaunch{&target, &values[1], sizeof target}, StreamRef::cuda(nullptr, 0)).code(),
            Code::kUnsupported);
  EXPECT_EQ(target, 5);
}

TEST(Kernels, CopyAtEveryAlignment) {
  std::vector<std::byte> source((size_t{14} << 20) + 64);
  testing::fill_elements(source.data(), testing::test_seed(), 0, 0, source.size() / 8, DType::kU64);
  for (const size_t bytes : Sizes{0, 1, 17, 63, 64, 65, 200, 4099, 1 << 16, (14 << 20) + 5}) {
    for (const size_t to : Sizes{0, 1, 2, 7, 8, 15, 33, 63}) {
      for (const size_t from : Sizes{0, 1, 4, 13}) {
        if (bytes > 100'000 && to + from != 15 && to + from != 1) continue;
        Guarded target(bytes, to);
        on_every_path([&] {
          target.poison();
          ASSERT_TRUE(launch(CopyLaunch{target.data(), source.data() + from, bytes}, StreamRef::caller()).ok());
          ASSERT_EQ(std::memcmp(target.data(), source.data() + from, bytes), 0)
              << bytes << " to " << to << " from " << from;
          ASSERT_TRUE(target.intact()) << bytes << " to " << to << " from " << from;
        });
      }
    }
  }
  EXPECT_TRUE(launch(CopyLaunch{source.data(), source.data(), source.size()}, StreamRef::caller()).ok());
  EXPECT_TRUE(launch(CopyLaunch{nullptr, nullptr, 0}, StreamRef::caller()).ok());
}

// The threads of a team cut a table wherever their shares end. Each part is given a copy of just the segments that it
// touches, so that a sanitizer sees a look beyond.
TEST(Kernels, TablesAreCutAnywhere) {
  constexpr size_t kTables = 400, kMostRows = 8, kMostCount = 700, kMostSources = 20, kRoom = 64;
  const uint64_t seed = testing::test_seed();
  for (uint64_t table = 0; table < kTables; ++table) {
    uint64_t drawn = 0;
    const auto below = [&](size_t limit) { return testing::random_bits(seed, table, ++drawn) % limit; };
    const auto dtype = static_cast<DType>(below(kDTypeCount));
    auto op = static_cast<ReduceOp>(below(kReduceOpCount));
    if (!supports(dtype, op)) op = ReduceOp::kSum;
    const size_t element = size_of(dtype), rows = 1 + below(kMostRows), sources = 2 + below(kMostSources - 1);
    std::vector<std::vector<std::byte>> inputs, targets, expected;
    std::vector<std::vector<const void*>> pointers(rows);
    std::vector<ReduceSegment> segments;
    size_t total = 0;
    for (size_t i = 0; i < rows; ++i) {
      const size_t count = below(3) == 0 ? 0 : below(kMostCount), at = below(32 / element) * element;
      std::vector<const std::byte*> of_row;
      for (size_t k = 0; k < sources && count != 0; ++k) {
        const size_t offset = below(16 / element) * element;
        auto& input = inputs.emplace_back(offset + count * element);
        testing::fill_elements(input.data() + offset, seed + table, static_cast<Rank>(k), i * 1000, count, dtype);
        of_row.push_back(input.data() + offset);
        pointers[i].push_back(input.data() + offset);
      }
      targets.emplace_back(count * element + kRoom, std::byte{0x5a});
      std::vector<std::byte>& right = expected.emplace_back(targets.back());
      if (count != 0) testing::reduce_elements(right.data() + at, of_row, count, dtype, op);
      canonicalize(right.data() + at, count, dtype);
      segments.push_back({targets.back().data() + at, pointers[i].data(), count});  // null where there are no elements
      total += count;
    }
    for (const HostPath& path : host_paths()) {
      for (const bool large : {false, true}) {
        if (!path.runs_here() || total == 0) continue;
        for (auto& target : targets) std::fill(target.begin(), target.end(), std::byte{0x5a});
        for (size_t done = 0; done < total;) {
          const size_t part = std::min(total - done, 1 + below(500));
          size_t first = 0, before = 0;
          while (before + segments[first].count <= done) before += segments[first++].count;
          size_t end = first, upto = before;
          while (upto < done + part) upto += segments[end++].count;
          const std::vector<ReduceSegment> touched(&segments[first], &segments[end - 1] + 1);
          path.find_reduce(dtype, op)({touched.data(), sources, done - before, part, large, 1});
          done += part;
        }
        for (size_t i = 0; i < rows; ++i) {
          ASSERT_EQ(targets[i], expected[i])
              << "row " << i << " of table " << table << ", " << name(op) << " of " << name(dtype) << ", " << sources
              << " sources, " << path.name << (large ? " large" : "") << ", seed " << seed;
        }
      }
    }
  }
}

TEST(Kernels, ThePathIsTheBestThatRunsHere) {
  const HostPath& chosen = host_path();
  std::cout << "host path: " << chosen.name << "\n";
  EXPECT_TRUE(chosen.runs_here());
  for (const HostPath& path : host_paths()) {
    if (&path == &chosen) break;
    EXPECT_FALSE(path.runs_here()) << path.name << " was passed over for " << chosen.name;
  }
  EXPECT_TRUE(host_paths().back().runs_here());
  EXPECT_FALSE(exceeds_caches(1));
  EXPECT_TRUE(exceeds_caches(size_t{1} << 40));
}

}  // namespace
}  // namespace shardcomm::kernels
