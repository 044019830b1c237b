// Package api writes down what a package exports, one line for each name, in
// sorted order and without the names of parameters: two lists differ if, and
// only if, a program could notice.
//
// It reads source files and not compiled packages, so the list does not depend
// on the Go release that makes it, nor on the platform.
package api

import (
	"bytes"
	"fmt"
	"go/ast"
	"go/parser"
	"go/printer"
	"go/token"
	"path/filepath"
	"slices"
	"strings"
)

// A Package is the source of one package, without its tests.
type Package struct {
	Name  string
	fset  *token.FileSet
	files []*ast.File
}

// Parse reads the package in a directory. It returns nil if there is none.
// Build constraints are ignored.
func Parse(dir string) (*Package, error) {
	paths, err := filepath.Glob(filepath.Join(dir, "*.go"))
	if err != nil {
		return nil, err
	}
	var p *Package
	fset := token.NewFileSet()
	for _, path := range paths {
		if strings.HasSuffix(path, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(fset, path, nil, parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			return nil, err
		}
		if p == nil {
			p = &Package{Name: file.Name.Name, fset: fset}
		}
		p.files = append(p.files, file)
	}
	return p, nil
}

// Exported returns the lines.
func (p *Package) Exported() []string {
	l := &list{}
	for _, file := range p.files {
		for _, decl := range file.Decls {
			switch decl := decl.(type) {
			case *ast.FuncDecl:
				l.function(decl)
			case *ast.GenDecl:
				l.general(decl)
			}
		}
	}
	slices.Sort(l.lines)
	return slices.Compact(l.lines) // a name may be declared once for each platform
}

type list struct{ lines []string }

func (l *list) add(format string, args ...any) {
	l.lines = append(l.lines, fmt.Sprintf(format, args...))
}

func (l *list) function(f *ast.FuncDecl) {
	if !f.Name.IsExported() {
		return
	}
	if f.Recv == nil {
		l.add("func %s%s", f.Name.Name, signature(f.Type))
		return
	}
	if of := f.Recv.List[0].Type; ast.IsExported(base(of)) {
		l.add("method (%s) %s%s", text(of), f.Name.Name, signature(f.Type))
	}
}

// base returns the name of a type without what it is made of or with.
func base(of ast.Expr) string {
	switch of := of.(type) {
	case *ast.StarExpr:
		return base(of.X)
	case *ast.IndexExpr:
		return base(of.X)
	case *ast.IndexListExpr:
		return base(of.X)
	case *ast.SelectorExpr:
		return of.Sel.Name
	case *ast.Ident:
		return of.Name
	}
	return ""
}

func (l *list) general(decl *ast.GenDecl) {
	var typ, value ast.Expr // of the constant before, which one without either repeats
	for i, spec := range decl.Specs {
		switch spec := spec.(type) {
		case *ast.TypeSpec:
			if spec.Name.IsExported() {
				l.typ(spec)
			}
		case *ast.ValueSpec:
			if decl.Tok == token.CONST && spec.Type == nil && spec.Values == nil {
				l.values(decl.Tok, spec.Names, typ, nil, i)
				continue
			}
			typ = spec.Type
			value = nil
			if len(spec.Values) == 1 {
				value = spec.Values[0]
			}
			l.values(decl.Tok, spec.Names, typ, value, i)
		}
	}
}

// values adds constants or variables. What a constant is worth is part of what
// is exported; a variable's first value is not, unless it has to tell its type.
func (l *list) values(tok token.Token, names []*ast.Ident, typ, value ast.Expr, position int) {
	for _, name := range names {
		if !name.IsExported() {
			continue
		}
		line := tok.String() + " " + name.Name
		if typ != nil {
			line += " " + text(typ)
		}
		switch {
		case tok == token.CONST && value == nil:
			line += fmt.Sprintf(" = (as above) at %d", position)
		case value != nil && (tok == token.CONST || typ == nil):
			line += " = " + text(value)
		}
		l.add("%s", line)
	}
}

func (l *list) typ(spec *ast.TypeSpec) {
	name := spec.Name.Name
	params := ""
	if spec.TypeParams != nil {
		params = "[" + fields(spec.TypeParams) + "]"
	}
	switch t := spec.Type.(type) {
	case *ast.StructType:
		l.add("type %s%s struct", name, params)
		l.members(name, "struct", t.Fields)
	case *ast.InterfaceType:
		l.add("type %s%s interface", name, params)
		l.members(name, "interface", t.Methods)
	default:
		equals := " "
		if spec.Assign.IsValid() {
			equals = " = "
		}
		l.add("type %s%s%s%s", name, params, equals, text(spec.Type))
	}
}

func (l *list) members(name, kind string, members *ast.FieldList) {
	for _, member := range members.List {
		if len(member.Names) == 0 && (kind == "interface" || ast.IsExported(base(member.Type))) { // embedded
			l.add("type %s %s, %s", name, kind, text(member.Type))
		}
		for _, id := range member.Names {
			what := " " + text(member.Type)
			if method, ok := member.Type.(*ast.FuncType); ok && kind == "interface" {
				what = signature(method)
			}
			switch {
			case id.IsExported():
				l.add("type %s %s, %s%s", name, kind, id.Name, what)
			case kind == "interface":
				// Nobody else can have it, so nobody else can be one.
				l.add("type %s %s, and an unexported method", name, kind)
			}
		}
	}
}

func signature(f *ast.FuncType) string {
	s := ""
	if f.TypeParams != nil {
		s = "[" + fields(f.TypeParams) + "]"
	}
	s += "(" + types(f.Params) + ")"
	if f.Results == nil {
		return s
	}
	results := types(f.Results)
	if f.Results.NumFields() > 1 {
		results = "(" + results + ")"
	}
	return s + " " + results
}

// types returns the types of parameters, each as often as there are names.
func types(list *ast.FieldList) string {
	var all []string
	for _, field := range list.List {
		for range max(len(field.Names), 1) {
			all = append(all, text(field.Type))
		}
	}
	return strings.Join(all, ", ")
}

// fields returns parameters with their names.
func fields(list *ast.FieldList) string {
	var all []string
	for _, field := range list.List {
		for _, name := range field.Names {
			all = append(all, name.Name+" "+text(field.Type))
		}
	}
	return strings.Join(all, ", ")
}

// text writes an expression on one line. Function types in it lose the names of
// their parameters, too.
func text(e ast.Expr) string {
	if f, ok := e.(*ast.FuncType); ok {
		return "func" + signature(f)
	}
	var b bytes.Buffer
	// Positions from a set of its own make the printer forget line breaks.
	_ = printer.Fprint(&b, token.NewFileSet(), e) // to memory
	return strings.Join(strings.Fields(b.String()), " ")
}
