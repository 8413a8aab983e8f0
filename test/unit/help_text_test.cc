// SPDX-License-Identifier: BSD-3-Clause
//
// help_text_test.cc: a text comes out of its file as it stands there, with its arguments; of one that is not
// there the user learns the file and the name.
#include "common/help_text.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>

namespace bfo {
namespace {

std::string framed(const std::string& text) {
  const std::string dashes = std::string(74, '-') + "\n";
  return dashes + text + dashes;
}

class HelpText : public testing::Test {
 protected:
  void SetUp() override { ASSERT_NE(mkdtemp(folder_), nullptr); }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  std::string path() const { return std::string(folder_) + "/help-test.txt"; }
  void write(const std::string& lines) const { std::ofstream(path()) << lines; }
  std::string read(const char* topic, ...) const {
    va_list arguments;
    va_start(arguments, topic);
    std::string text = help_text(path(), topic, arguments);
    va_end(arguments);
    return text;
  }
  std::string missing(const char* topic, const std::string& why) const {
    return std::string("bfo: the help text \"") + topic + "\" is missing: the file " + path() + " " + why +
           "\n";
  }

 private:
  char folder_[32] = "/tmp/bfo-help-XXXXXX";
};

TEST_F(HelpText, ATopicEndsBeforeTheNextOne) {
  write("[first]\nOne line.\n[second]\nAnother,\n  and one more.\n[third]\nThe end.\n");
  EXPECT_EQ(read("first"), framed("One line.\n"));
  EXPECT_EQ(read("second"), framed("Another,\n  and one more.\n"));
}

TEST_F(HelpText, TheLastTopicEndsWithTheFile) {
  write("[first]\nOne line.\n[last]\nThe end.\n");
  EXPECT_EQ(read("last"), framed("The end.\n"));
  write("[first]\nOne line.\n[last]\nThe end.");
  EXPECT_EQ(read("last"), framed("The end.\n"));
}

TEST_F(HelpText, CommentsAreLeftOut) {
  write(
      "# About the file\n#\n[first]\nOne line.\n# Not this one.\nAn # in a line stays.\n#\n[second]\n# Nor "
      "this.\n");
  EXPECT_EQ(read("first"), framed("One line.\nAn # in a line stays.\n"));
  EXPECT_EQ(read("second"), framed(""));
}

TEST_F(HelpText, EmptyLinesStay) {
  write("[first]\n\nOne line.\n\n  Another.\n\n[second]\n");
  EXPECT_EQ(read("first"), framed("\nOne line.\n\n  Another.\n\n"));
}

TEST_F(HelpText, ArgumentsAreFilledIn) {
  write("[first]\n%s of host \"%s\" is %d, %u and %lu: 100%%.\n");
  EXPECT_EQ(read("first", "It", "n17", -1, 2u, 1ul << 40),
            framed("It of host \"n17\" is -1, 2 and 1099511627776: 100%.\n"));
}

TEST_F(HelpText, AnArgumentIsNoFormat) {
  write("[first]\nIt is %s.\n");
  EXPECT_EQ(read("first", "%s%n"), framed("It is %s%n.\n"));
}

TEST_F(HelpText, NothingIsCut) {
  const std::string much(100'000, 'x');
  write("[first]\n" + much + "%s\n");
  EXPECT_EQ(read("first", much.c_str()), framed(much + much + "\n"));
}

TEST_F(HelpText, ATopicIsItsWholeName) {
  write("[rail-lost]\nLonger.\n[rail]\nShorter.\n[lost]\nThe end of one.\n");
  EXPECT_EQ(read("rail"), framed("Shorter.\n"));
  EXPECT_EQ(read("rail-lost"), framed("Longer.\n"));
  EXPECT_EQ(read("lost"), framed("The end of one.\n"));
  EXPECT_EQ(read("rail-"), missing("rail-", "has no such text"));
}

TEST_F(HelpText, ALineThatBeginsWithABracketIsNoTopic) {
  write("[first]\n[second] is text, as is\n [second]\n[]\n[second]\nThe end.\n");
  EXPECT_EQ(read("first"), framed("[second] is text, as is\n [second]\n[]\n"));
  EXPECT_EQ(read("second"), framed("The end.\n"));
}

TEST_F(HelpText, AMissingTopicIsNamed) {
  write("# [absent]\n[first]\nOne line about absent.\n");
  EXPECT_EQ(read("absent"), missing("absent", "has no such text"));
  write("");
  EXPECT_EQ(read("absent"), missing("absent", "has no such text"));
}

// The arguments of a text that is not there are not looked at.
TEST_F(HelpText, AMissingFileIsNamed) {
  EXPECT_EQ(read("first", "%s", 17), missing("first", "cannot be read: No such file or directory"));
}

TEST_F(HelpText, WhatIsNoFileIsNamed) {
  std::filesystem::create_directory(path());
  EXPECT_EQ(read("first"), missing("first", "cannot be read: Is a directory"));
}

// Here the code is in the test itself.
TEST(HelpPath, IsBesideTheCode) {
  const std::filesystem::path own = std::filesystem::read_symlink("/proc/self/exe");
  EXPECT_TRUE(std::filesystem::equivalent(help_path(own.filename().c_str()), own));
  EXPECT_EQ(std::filesystem::path(help_path("help-test.txt")).filename(), "help-test.txt");
}

}  // namespace
}  // namespace bfo
