// What seals notice: every byte of a short range, an update of a long one.
#include "zero/seals.h"

#include <gtest/gtest.h>

#include <vector>

namespace shardcomm::zero {
namespace {

using Bytes = std::vector<std::byte>;

TEST(Seals, NoticeEveryByteOfAShortRange) {
  for (const size_t size : {size_t{1}, size_t{64}, size_t{1000}, kCompleteBytes}) {
    Bytes bytes(size, std::byte{7});
    const uint64_t sealed = seal_of(bytes);
    for (std::byte& byte : bytes) {
      byte ^= std::byte{1};
      ASSERT_NE(seal_of(bytes), sealed) << "byte " << &byte - bytes.data() << " of " << size;
      byte ^= std::byte{1};
    }
    EXPECT_EQ(seal_of(bytes), sealed);
  }
}

TEST(Seals, NoticeBothEndsOfALongRangeAndEverySixtyFourthPart) {
  for (const size_t size : {kCompleteBytes + 1, kCompleteBytes + 4, 10 * kCompleteBytes, (size_t{1} << 20) + 12}) {
    Bytes bytes(size, std::byte{7});
    const uint64_t sealed = seal_of(bytes);
    for (const size_t at : {size_t{0}, size - 1}) {
      bytes[at] ^= std::byte{1};
      EXPECT_NE(seal_of(bytes), sealed) << "byte " << at << " of " << size;
      bytes[at] ^= std::byte{1};
    }
    const size_t part = size / (kSampledLines - 1) + 64;
    for (size_t begin = 0; begin + part <= size; begin += part) {
      for (size_t i = begin; i < begin + part; ++i) bytes[i] ^= std::byte{1};
      EXPECT_NE(seal_of(bytes), sealed) << "bytes " << begin << " to " << begin + part << " of " << size;
      for (size_t i = begin; i < begin + part; ++i) bytes[i] ^= std::byte{1};
    }
    EXPECT_EQ(seal_of(bytes), sealed);
  }
}

TEST(Seals, TellWhatAnUpdateMayWriteFromWhatItMayNot) {
  Bytes masters(100), values(50);
  Seals seals(2);
  seals.watch(1, masters, Seals::Writer::kUpdate);
  seals.watch(1, values, Seals::Writer::kEngine);
  seals.watch(1, {}, Seals::Writer::kEngine);
  EXPECT_TRUE(seals.intact(0) && seals.intact(1) && seals.intact_in_update(1));
  masters[3] = std::byte{1};
  EXPECT_FALSE(seals.intact(1));
  EXPECT_TRUE(seals.intact_in_update(1));
  values[3] = std::byte{1};
  EXPECT_FALSE(seals.intact_in_update(1));
  EXPECT_TRUE(seals.intact(0));
  seals.seal(1);
  EXPECT_TRUE(seals.intact(1) && seals.intact_in_update(1));
}

}  // namespace
}  // namespace shardcomm::zero
