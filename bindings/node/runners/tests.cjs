// `node:test`, as far as the tests use it, by the functions of the runner.
exports.before = beforeAll;
exports.after = afterAll;
exports.test = (name, ...rest) => {
  const work = rest.pop();
  test(name, async () => {
    const ends = [];
    try {
      await work({ after: (end) => ends.push(end) });
    } finally {
      for (const end of ends) await end();
    }
  });
};
