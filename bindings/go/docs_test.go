package permits

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// imports has what the blocks of the page may import.
var imports = map[string]string{
	"context": "context", "errors": "errors", "fmt": "fmt", "permits": "github.com/permits-rs/permits/bindings/go",
	"time": "time",
}

// around has the declarations that a block of the page may use without making them.
const around = `
var (
	client  *permits.Client
	exports *permits.Semaphore
)

func upload(ctx context.Context) error { return ctx.Err() }

func use(ctx context.Context, permit *permits.Permit) error {
`

// The test compiles every block, and runs every program.
func TestThePageOfThePackage(t *testing.T) {
	page, err := os.ReadFile("../../docs/languages/go.md")
	if os.IsNotExist(err) {
		t.Skip("the page is part of the repository, and not of the module")
	} else if err != nil {
		t.Fatal(err)
	}
	here, err := filepath.Abs(".")
	if err != nil {
		t.Fatal(err)
	}
	directory := t.TempDir()
	write := func(path, text string) {
		path = filepath.Join(directory, path)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	const module = "github.com/permits-rs/permits/bindings/go"
	write("go.mod", fmt.Sprintf("module page\n\ngo 1.23\n\nrequire %s v0.0.0\n\nreplace %s => %s\n", module, module, here))
	blocks := regexp.MustCompile("(?ms)^```go\n(.*?)^```$").FindAllStringSubmatch(string(page), -1)
	var programs []string
	for number, block := range blocks {
		name, text := fmt.Sprintf("block%d", number), block[1]
		if strings.HasPrefix(text, "package main") {
			programs = append(programs, name)
			// The page names a server on the machine of the reader.
			text = strings.ReplaceAll(text, `"redis://127.0.0.1/"`, `"`+serverURL+`"`)
		} else {
			text = inFunction(text)
		}
		write(name+"/main.go", text)
	}
	if len(blocks) < 8 || len(programs) < 4 {
		t.Fatalf("%d blocks, %d programs", len(blocks), len(programs))
	}
	build := func(words ...string) {
		t.Helper()
		command := exec.Command("go", words...)
		command.Dir = directory
		if text, err := command.CombinedOutput(); err != nil {
			t.Fatalf("%v: %v\n%s", words, err, text)
		}
	}
	build("vet", "-unreachable=false", "./...")
	build(append([]string{"build", "-o", "programs/"}, prefixed("./", programs)...)...)
	for _, name := range programs {
		command := exec.Command(filepath.Join(directory, "programs", name))
		command.Env = append(os.Environ(), "REDIS_URL="+serverURL)
		source, _ := os.ReadFile(filepath.Join(directory, name, "main.go"))
		text, err := command.CombinedOutput()
		if isCrash := strings.Contains(string(source), "panic("); (err != nil) != isCrash {
			t.Errorf("%s: %v\n%s", source, err, text)
		}
	}
	for _, name := range []string{"exports", "video-encoder", "renewed", "crashes"} {
		until(t, serverURL, name, state{})
	}
}

func prefixed(prefix string, names []string) []string {
	var paths []string
	for _, name := range names {
		paths = append(paths, prefix+name)
	}
	return paths
}

// inFunction makes a package from statements.
func inFunction(text string) string {
	if strings.Contains(text, "permit, err :=") {
		text = strings.Replace(around, ", permit *permits.Permit", "", 1) + text
	} else {
		text = around + text
	}
	// Return after whatever statements of the page come before.
	text += "\nreturn nil\n}\n"
	header := "package main\n\nimport (\n"
	for name, path := range imports {
		if strings.Contains(text, name+".") {
			header += fmt.Sprintf("\t%s %q\n", name, path)
		}
	}
	return header + ")\n\nfunc main() {}\n" + text
}
