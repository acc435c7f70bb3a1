// Two ranks as threads gather what each has.
#include <shardcomm/shardcomm.h>

#include <cstdio>
#include <thread>
#include <vector>

namespace {

using namespace shardcomm;

constexpr size_t kCount = 1000;

Status gather(Rank rank, int ranks) {
  SHARDCOMM_TRY_ASSIGN(const Options options, Options::parse("timeout_ms=20000"));
  SHARDCOMM_TRY_ASSIGN(const auto store, open_store("local://consumer"));
  SHARDCOMM_TRY_ASSIGN(Communicator comm, Communicator::create(*store, {rank, ranks}, options));
  const std::vector<float> shard(kCount, static_cast<float>(rank + 1));
  std::vector<float> full(kCount * static_cast<size_t>(ranks));
  const Result<Work> work = comm.all_gather(
      {.shard = shard.data(), .full = full.data(), .count = kCount, .dtype = DType::kF32}, StreamRef::caller());
  SHARDCOMM_TRY(work.status());
  for (size_t i = 0; i < full.size(); ++i) {
    if (full[i] != static_cast<float>(i / kCount + 1)) return Status(Code::kInternal, "wrong element");
  }
  return {};
}

}  // namespace

int main() {
  Status outcome[2];
  std::thread other([&] { outcome[1] = gather(1, 2); });
  outcome[0] = gather(0, 2);
  other.join();
  for (const Status& status : outcome) {
    if (!status.ok()) return std::fprintf(stderr, "%s\n", status.to_string().c_str()), 1;
  }
  std::puts("gathered");
}
