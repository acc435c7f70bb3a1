// Status, Result and the names of types, as the public headers promise them.
#include "shardcomm/status.h"

#include <gtest/gtest.h>

#include <cerrno>
#include <set>
#include <string>

#include "base/text.h"
#include "shardcomm/types.h"

namespace shardcomm {
namespace {

TEST(Status, SuccessHoldsNothing) {
  const Status status;
  EXPECT_TRUE(status.ok());
  EXPECT_EQ(status.code(), Code::kOk);
  EXPECT_EQ(status.to_string(), "ok");
  EXPECT_TRUE(status.message().empty());
  EXPECT_TRUE(status.context("sailing").ok());
  EXPECT_EQ(sizeof(Status), 2 * sizeof(void*));
}

TEST(Status, ContextIsPrependedAndKeepsTheNativeCode) {
  const Status status = Status::native(Origin::kErrno, ENOMEM, "mmap 4096 bytes").context("gathering unit 7");
  EXPECT_EQ(status.code(), Code::kOutOfMemory);
  EXPECT_EQ(status.origin(), Origin::kErrno);
  EXPECT_EQ(status.native_value(), ENOMEM);
  EXPECT_EQ(status.to_string(),
            "out_of_memory: while gathering unit 7: mmap 4096 bytes: ENOMEM, Cannot allocate memory");
}

TEST(Status, NativeNumbersHaveCodes) {
  const auto code = [](Origin origin, int value) { return Status::native(origin, value, "call").code(); };
  EXPECT_EQ(code(Origin::kErrno, ETIMEDOUT), Code::kTimedOut);
  EXPECT_EQ(code(Origin::kErrno, EACCES), Code::kUnavailable);
  EXPECT_EQ(code(Origin::kErrno, EPERM), Code::kUnavailable);
  EXPECT_EQ(code(Origin::kErrno, ENOSYS), Code::kUnsupported);
  EXPECT_EQ(code(Origin::kErrno, ECONNRESET), Code::kPeerLost);
  EXPECT_EQ(code(Origin::kErrno, EINVAL), Code::kSystem);
  EXPECT_EQ(code(Origin::kVerbs, ENOMEM), Code::kOutOfMemory);
  EXPECT_EQ(code(Origin::kCuda, 2), Code::kDevice);
  EXPECT_EQ(code(Origin::kNccl, 3), Code::kSystem);
  EXPECT_EQ(Status::native(Origin::kErrno, 99999, "call").message(), "call: errno 99999");
  EXPECT_EQ(Status::native(Origin::kCuda, 2, "cudaMalloc").message(), "cudaMalloc: cuda error 2");
}

TEST(Status, EveryCodeHasItsOwnName) {
  std::set<std::string_view> names;
  for (int i = 0; i <= static_cast<int>(Code::kDataLoss); ++i) names.insert(code_name(static_cast<Code>(i)));
  EXPECT_EQ(names.size(), static_cast<size_t>(Code::kDataLoss) + 1);
  EXPECT_EQ(names.count("unknown"), 0u);
  EXPECT_EQ(code_name(static_cast<Code>(99)), "unknown");
}

Result<std::string> word(bool good) {
  if (!good) return Status(Code::kUnavailable, "no word");
  return std::string("word");
}

Status twice(bool good, std::string& target) {
  SHARDCOMM_TRY_ASSIGN(const std::string first, word(true));
  SHARDCOMM_TRY_ASSIGN(const std::string second, word(good));
  target = first + second;
  return {};
}

TEST(Result, TryReturnsTheFirstError) {
  std::string target = "untouched";
  EXPECT_EQ(twice(false, target).message(), "no word");
  EXPECT_EQ(target, "untouched");
  EXPECT_TRUE(twice(true, target).ok());
  EXPECT_EQ(target, "wordword");
}

TEST(Types, NamesAreInverses) {
  std::set<std::string_view> names;
  for (int i = 0; i < kDTypeCount; ++i) {
    const auto dtype = static_cast<DType>(i);
    EXPECT_EQ(parse_dtype(name(dtype)), dtype);
    EXPECT_GT(size_of(dtype), 0u);
    names.insert(name(dtype));
  }
  EXPECT_EQ(names.size(), static_cast<size_t>(kDTypeCount));
  for (int i = 0; i < kReduceOpCount; ++i) {
    EXPECT_EQ(parse_reduce_op(name(static_cast<ReduceOp>(i))), static_cast<ReduceOp>(i));
  }
  EXPECT_EQ(name(DType::kBF16), "bf16");
  EXPECT_EQ(name(DType::kF8E4M3), "f8e4m3");
  EXPECT_EQ(name(static_cast<DType>(200)), "unknown");
  EXPECT_FALSE(parse_dtype("unknown").has_value());
  EXPECT_FALSE(parse_dtype("").has_value());
  EXPECT_FALSE(parse_reduce_op("SUM").has_value());
  EXPECT_FALSE(supports(DType::kI32, ReduceOp::kAverage));
}

TEST(Text, ParsesAndPrintsSizes) {
  EXPECT_EQ(parse_size("0"), 0u);
  EXPECT_EQ(parse_size("8"), 8u);
  EXPECT_EQ(parse_size("4K"), 4096u);
  EXPECT_EQ(parse_size("256M"), size_t{256} << 20);
  EXPECT_EQ(parse_size("2GiB"), size_t{2} << 30);
  EXPECT_EQ(parse_size("1kb"), 1024u);
  EXPECT_EQ(parse_size("16383G"), size_t{16383} << 30);
  for (const char* bad : {"", "K", "-1", "1.5M", " 1", "1 M", "1X", "1MM", "99999999999999999999", "17179869184G"}) {
    EXPECT_FALSE(parse_size(bad).has_value()) << bad;
  }
  for (const size_t bytes : {size_t{0}, size_t{1}, size_t{1000}, size_t{1024}, size_t{3} << 20, size_t{1} << 50}) {
    EXPECT_EQ(parse_size(size_text(bytes)), bytes);
  }
  EXPECT_EQ(readable_bytes(17), "17 bytes");
  EXPECT_EQ(readable_bytes(size_t{100} << 30), "100 GiB");
  EXPECT_EQ(readable_bytes(1536), "1.5 KiB");
}

TEST(Text, SplitKeepsEmptyParts) {
  using Parts = std::vector<std::string_view>;
  EXPECT_EQ(split("", ','), Parts{});
  EXPECT_EQ(split("a", ','), Parts{"a"});
  EXPECT_EQ(split("a,,b,", ','), (Parts{"a", "", "b", ""}));
}

}  // namespace
}  // namespace shardcomm
