#include "tests/command/training.h"

#include <cstring>
#include <filesystem>

#include "shardcomm/checkpoint.h"

namespace shardcomm::testing {

namespace {

std::set<std::string> shared_memory() {
  std::set<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator("/dev/shm")) names.insert(entry.path().filename());
  return names;
}

}  // namespace

TrainingTest::TrainingTest() : shared_memory_(shared_memory()) {
  std::string text;
  for (int i = 0; i < 90; ++i)
    text += "line " + std::to_string(i) + ": " + std::to_string(i * i * 31 % 97) + " quick foxes and a lazy dog.\n";
  write_text(corpus_, text);
}

TrainingTest::~TrainingTest() { EXPECT_EQ(shared_memory(), shared_memory_) << "files of /dev/shm"; }

Words TrainingTest::training(int ranks, const Words& more) const {
  Words arguments = {"train",
                     "--ranks",
                     std::to_string(ranks),
                     "--batch",
                     std::to_string(kGlobalBatch / ranks),
                     "--layers",
                     "2",
                     "--channels",
                     "16",
                     "--heads",
                     "2",
                     "--seq",
                     "16",
                     "--data",
                     corpus_,
                     "--schedule",
                     "constant"};
  arguments.insert(arguments.end(), more.begin(), more.end());
  return arguments;
}

std::vector<Json> read_log(const std::string& path) {
  std::vector<Json> steps;
  for (const std::string& line : lines_of(read_text(path))) steps.push_back(parse_json(line));
  return steps;
}

void expect_same_tensors(const std::string& one, const std::string& other) {
  const auto first = inspect_checkpoint(one), second = inspect_checkpoint(other);
  ASSERT_TRUE(first.ok()) << first.status().to_string();
  ASSERT_TRUE(second.ok()) << second.status().to_string();
  ASSERT_EQ(first.value().tensors.size(), second.value().tensors.size());
  ASSERT_EQ(first.value().tensors.size(), 3u * 28);  // parameters and both moments of 28
  for (const CheckpointTensor& tensor : first.value().tensors) {
    const auto a = read_checkpoint_parameter(one, tensor.name), b = read_checkpoint_parameter(other, tensor.name);
    ASSERT_TRUE(a.ok()) << a.status().to_string();
    ASSERT_TRUE(b.ok()) << b.status().to_string();
    ASSERT_EQ(a.value().size(), b.value().size()) << tensor.name;
    EXPECT_EQ(std::memcmp(a.value().data(), b.value().data(), a.value().size() * sizeof(float)), 0) << tensor.name;
  }
}

void expect_same_step(const Json& one, const Json& other) {
  for (const char* field : {"step", "tokens", "loss", "lr", "grad_norm"}) {
    ASSERT_TRUE(one.contains(field) && other.contains(field)) << field;
    EXPECT_EQ(one[field], other[field]) << field << " of step " << one["step"];  // printed with all digits
  }
  EXPECT_EQ(one.value("val_loss", 0.0), other.value("val_loss", 0.0));
}

}  // namespace shardcomm::testing
