#include <algorithm>
#include <utility>

#include "runtime/base/error.h"
#include "runtime/base/names.h"
#include "runtime/base/text.h"
#include "runtime/data/file_names.h"
#include "runtime/data/images/image_format.h"
#include "runtime/data/images/tar.h"
#include "runtime/data/images/tar_index.h"
#include "runtime/data/source_file.h"

namespace lockstep::data {
namespace {

class TarStore final : public ImageStore {
 public:
  explicit TarStore(int64_t window) : window_(window) {}

  // `path`: the file's name in the config.
  void add(SourceFile file, const std::string& path, const std::vector<TarSample>& samples) {
    files_.push_back(std::move(file));
    paths_.push_back(path);
    begins_.push_back(static_cast<int64_t>(samples_.size()));
    samples_.insert(samples_.end(), samples.begin(), samples.end());
  }
  void repeat_last(size_t times) {
    samples_.insert(samples_.end(), times, TarSample(samples_.back()));
  }
  void finish() {
    samples_.shrink_to_fit();
    begins_.push_back(count());
  }

  int64_t count() const override { return static_cast<int64_t>(samples_.size()); }
  int32_t label(int64_t index) const override { return samples_[static_cast<size_t>(index)].label; }

  // Names are not stored. This reads the tar file's headers again, as it is only for messages.
  std::string name(int64_t index) const override {
    const SourceFile& file = file_of(index);
    TarReader reader(file.bytes(), file.name());
    TarMember member;
    const std::byte* wanted = file.bytes().data() + samples_[static_cast<size_t>(index)].offset;
    while (reader.next(&member))
      if (member.data.data() == wanted) return file.name() + ": " + member.name;
    return file.name();
  }

  // A sample's file is the tar file with the member: "a.tar/cat/1.jpg".
  std::vector<std::string> files() const override {
    return names_with(
        [&](size_t file, const std::string& member) { return paths_[file] + "/" + member; });
  }
  std::vector<std::string> split_names() const override {
    return names_with([](size_t, const std::string& member) { return member; });
  }

  // A name for each sample: name_of(index of its tar file, name of its member).
  template <typename NameOf>
  std::vector<std::string> names_with(NameOf&& name_of) const {
    std::vector<std::string> names;
    for (size_t i = 0; i < files_.size(); ++i) {
      TarReader reader(files_[i].bytes(), files_[i].name());
      TarMember member;
      for (int64_t sample = begins_[i]; sample < begins_[i + 1]; ++sample) {
        const std::byte* wanted =
            files_[i].bytes().data() + samples_[static_cast<size_t>(sample)].offset;
        while (member.data.data() != wanted && reader.next(&member)) continue;
        names.push_back(name_of(i, member.name));
      }
    }
    return names;
  }

  StoredImage load(int64_t index, std::vector<std::byte>& /*buffer*/) const override {
    const TarSample& sample = samples_[static_cast<size_t>(index)];
    if (sample.bytes == 0) throw DataError("the member is empty");
    StoredImage image;
    image.bytes = file_of(index).bytes().subspan(sample.offset, sample.bytes);
    return image;
  }

  bool encoded() const override { return true; }
  int64_t resident_bytes() const override {
    return static_cast<int64_t>(samples_.capacity() * sizeof(TarSample));
  }
  SampleOrder order() const override {
    SampleOrder order{count(), {}, window_, "data.tar_shards.shuffle_buffer"};
    for (size_t i = 0; i + 1 < begins_.size(); ++i)
      order.shard_samples.push_back(begins_[i + 1] - begins_[i]);
    return order;
  }

  int32_t largest_label() const {
    return std::ranges::max_element(samples_, {}, &TarSample::label)->label;
  }

 private:
  const SourceFile& file_of(int64_t index) const {
    const auto next = std::ranges::upper_bound(begins_, index);
    return files_[static_cast<size_t>(next - begins_.begin()) - 1];
  }

  std::vector<SourceFile> files_;
  std::vector<std::string> paths_;  // of files_
  std::vector<int64_t> begins_;     // first sample of each file, and the number of samples
  std::vector<TarSample> samples_;
  int64_t window_;
};

std::string count_hidden(int64_t members) {
  return fmt::format("{} hidden member{}", members, plural(members));
}

// According to data.bad_records, a bad sample fails the run, is skipped, or is replaced by the next
// good one (at the end by the last one). `classes`: 0 if labels have no limit.
std::shared_ptr<const TarStore> open_shards(const DataConfig& config,
                                            const std::vector<std::string>& patterns,
                                            const std::string& field,
                                            int64_t window,
                                            int64_t classes,
                                            int64_t* bad_records,
                                            int64_t* hidden_members) {
  auto store = std::make_shared<TarStore>(window);
  BadAtOpening bad(config);
  int64_t good = 0, hidden = 0;
  const std::vector<std::string> paths = expand_names(patterns, config.dir, "data." + field);
  for (const std::string& path : paths) {
    SourceFile file(config.dir, path, field, SourceFile::Gzip::kNever);
    std::vector<TarSample> samples;
    hidden += index_tar(
        file.bytes(),
        file.name(),
        classes,
        [&](const TarSample& sample) {
          samples.insert(samples.end(), 1 + bad.take_pending(), sample);
          ++good;
        },
        [&](const std::string& what) { bad.add(what); });
    if (!samples.empty()) store->add(std::move(file), path, samples);
  }
  bad.check(good + bad.count(), paths.front());
  *bad_records += bad.count();
  *hidden_members += hidden;
  if (good == 0)
    throw DataError(
        "{}: has no samples; each is an image (.jpg, .jpeg, .png) and a class (.cls) "
        "with the same name up to the first dot{}",
        paths.front(),
        hidden > 0 ? fmt::format("; {} were passed over", count_hidden(hidden)) : "");
  store->repeat_last(bad.take_pending());
  store->finish();
  return store;
}

class TarShards final : public ImageFormat<TarShardsConfig> {
 public:
  using ImageFormat::ImageFormat;

  PlaceholderData make_placeholder(const MissingFile& missing) const override {
    if (config_.classes == 0) return missing.with_outputs_of_model("classes");
    return {fmt::format("{} classes, as data.tar_shards.classes says", config_.classes),
            config_.classes};
  }

  std::optional<DataSource> source_at(const std::string& path) const override {
    if (!has_suffix(path, ".tar") && !has_suffix(path, ".tar.gz") && !has_suffix(path, ".tgz"))
      return std::nullopt;
    TarShardsConfig shards;
    shards.train = {path};
    shards.shuffle_buffer = 1;
    return shards;
  }

 protected:
  // The training shards define the number of classes, unless the config has it.
  ImageStores open_images(bool need_train) const override {
    ImageStores stores;
    stores.classes = config_.classes;
    stores.kind = "tar shards";
    int64_t hidden = 0;
    if (need_train || config_.classes == 0) {
      const auto train = open_shards(data_,
                                     config_.train,
                                     "tar_shards.train",
                                     config_.shuffle_buffer,
                                     config_.classes,
                                     &stores.bad_records,
                                     &hidden);
      if (stores.classes == 0) stores.classes = int64_t{train->largest_label()} + 1;
      if (need_train) stores.train = train;
    }
    if (!config_.eval.empty())
      stores.eval = open_shards(data_,
                                config_.eval,
                                "tar_shards.eval",
                                config_.shuffle_buffer,
                                stores.classes,
                                &stores.bad_records,
                                &hidden);
    if (hidden > 0) stores.kind += fmt::format(" ({} passed over)", count_hidden(hidden));
    return stores;
  }
};

}  // namespace

template <>
std::unique_ptr<const DataFormat> make_format(const DataConfig& data,
                                              const TarShardsConfig& shards) {
  return std::make_unique<TarShards>(data, shards);
}

}  // namespace lockstep::data
