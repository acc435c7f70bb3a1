#include "tools/trainer/agree.h"

#include <memory>

namespace shardcomm::trainer {
namespace {

constexpr size_t kTextBytes = 4096;

struct Answer {
  int32_t code;
  char text[kTextBytes];
};

}  // namespace

Result<std::string> answer_of_first(Communicator& comm, const std::function<Result<std::string>()>& ask) {
  const auto answer = std::make_unique<Answer>();
  if (comm.rank() == 0) {
    const Result<std::string> found = ask();
    const std::string text(found.ok() ? found.value() : std::string(found.status().message()));
    answer->code = static_cast<int32_t>(found.status().code());
    text.copy(answer->text, kTextBytes - 1);
  }
  SHARDCOMM_TRY(
      comm.broadcast({answer.get(), sizeof *answer, DType::kU8, 0, "rank 0's answer"}, StreamRef::caller()).status());
  if (answer->code != 0) return Status(static_cast<Code>(answer->code), answer->text);
  return std::string(answer->text);
}

Status outcome_of_first(Communicator& comm, const std::function<Status()>& act) {
  return answer_of_first(comm,
                         [&]() -> Result<std::string> {
                           SHARDCOMM_TRY(act());
                           return std::string();
                         })
      .status();
}

}  // namespace shardcomm::trainer
